"""The command tree. A command's code is loaded when that command runs, not before."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from toolrest import __version__
from toolrest.cli.interrupts import interruptible
from toolrest.errors import ToolrestError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "acp": ("toolrest.cli.servers.acp", "Serve an editor as its agent (Agent Client Protocol)."),
    "approvals": (
        "toolrest.cli.security.approvals",
        "Approve or deny calls that wait for an answer.",
    ),
    "apply-patch": ("toolrest.cli.setup.apply_patch", "Apply a patch to the files it names."),
    "audit": ("toolrest.cli.security.audit", "Check or read the audit log."),
    "batch": ("toolrest.cli.batch.run", "Run many tasks from a file, several at a time."),
    "call": ("toolrest.cli.run.call", "Call one tool and print its answer to a model."),
    "chat": ("toolrest.cli.run.chat", "Talk with a model; plain `toolrest` does the same."),
    "completion": ("toolrest.cli.setup.completion", "Print a shell's completion script."),
    "config": ("toolrest.cli.setup.config", "Show, change or import settings."),
    "demo": ("toolrest.cli.run.demo", "Watch a model repair a small project with real tools."),
    "doctor": (
        "toolrest.cli.security.doctor",
        "Check key, model, programs and sandbox of this machine.",
    ),
    "help": ("toolrest.cli.setup.help", "Explain a command, or list `all` of them."),
    "hooks": (
        "toolrest.cli.security.hooks",
        "List your hooks and the tools that each one is run for.",
    ),
    "host": ("toolrest.cli.servers.host", "Run a session without a terminal, for `toolrest web`."),
    "mcp": ("toolrest.cli.servers.mcp", "MCP servers for this agent, and this agent as a server."),
    "exec": ("toolrest.cli.run.exec", "Give a model a task and run it to its end."),
    "grants": ("toolrest.cli.security.grants", "List or revoke grants."),
    "policy": (
        "toolrest.cli.security.policy",
        "Print the decision on a command, or test the policy.",
    ),
    "models": ("toolrest.cli.setup.models", "List the models that a provider offers."),
    "gc": ("toolrest.cli.run.gc", "Remove old sessions, spill files, logs and checkpoints."),
    "replay": ("toolrest.cli.run.sessions", "Play a recorded session; nothing is run."),
    "report": (
        "toolrest.cli.run.report",
        "Write a problem report to a file; nothing is sent.",
    ),
    "resume": ("toolrest.cli.run.chat", "Continue an earlier session in the chat."),
    "sandbox": ("toolrest.cli.security.sandbox", "Run a command in the sandbox, as a model would."),
    "sessions": ("toolrest.cli.run.sessions", "List, show, resume, fork or export sessions."),
    "setup": (
        "toolrest.cli.setup.first_run",
        "Pick a provider, a key and a model, and check that they work.",
    ),
    "tools": (
        "toolrest.cli.setup.tools",
        "List the tools on offer, or their specs for a model API.",
    ),
    "undo": ("toolrest.cli.run.undo", "Undo a turn's changes in this folder."),
    "vm": ("toolrest.cli.security.vm", "Prepare the virtual machine that commands can run in."),
    "trust": (
        "toolrest.cli.security.trust",
        "Trust a folder's own settings, or stop trusting them.",
    ),
    "web": ("toolrest.cli.servers.web", "Open sessions and approvals in a browser."),
}


SECTIONS = {
    "Work": ("chat", "exec", "resume", "undo", "sessions", "approvals"),
    "Set up": ("setup", "doctor", "trust", "models", "mcp"),
    "Elsewhere": ("web", "batch", "demo"),
}
"""The commands that people start with, as the help shows them."""

IS_IMPLIED, SHOWS_ALL = "toolrest.chat-is-implied", "toolrest.shows-all"
"""Names in a context's `meta`."""

_EXTRAS = {
    "acp": "acp",
    "fsspec": "batch",
    "html_to_markdown": "web",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "PIL": "images",
    "prompt_toolkit": "chat",
    "ray": "ray",
    "starlette": "web-ui",
    "uvicorn": "web-ui",
}
"""Packages that a core install does not have, and the extra that brings each."""

_OWN_SIGNALS = ("chat", "exec", "resume")
"""Commands that load most of their code after they began, and handle signals before that."""


class Lazy(click.Group):
    """A group that knows its commands' names and one-line helps without importing them.

    `known` has a module and a line for each; the module has it as `NAME_command`, or `command`.
    """

    def __init__(self, *args: Any, known: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known = known

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name."""
        return sorted(self.known)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in self.known:
            return None
        module = import_module(self.known[cmd_name][0])
        if cmd_name not in _OWN_SIGNALS:
            interruptible()
        found: click.Command | None = getattr(module, f"{cmd_name}_command", None)
        return found or module.command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        if args and args[0] not in self.known and not args[0].startswith("-"):
            raise click.UsageError(self.unknown(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def unknown(self, word: str) -> str:
        """Say that there is no such command, and which one was probably meant."""
        # Only for a command that there is not.
        import difflib

        near = difflib.get_close_matches(word, self.known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"there is no command {word!r}.{hint}"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name from what is known here."""
        # Only a shell that completes a line needs it.
        from click.shell_completion import CompletionItem

        names = [name for name in sorted(self.known) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.known[name][1]) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from what is known here."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.known[name][1]) for name in sorted(self.known)])


class Root(Lazy):
    """All commands; a message, and the chat's options, start the chat without naming it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `chat` where it is left out."""
        words = with_chat(args)
        # After options, a word that may be a command is not taken for a message.
        ctx.meta[IS_IMPLIED] = words != args and "--" not in args
        return super().parse_args(ctx, words)

    def unknown(self, word: str) -> str:
        """Say that there is no such command, which one was meant, and how to send a message."""
        if word in self.known:
            return f"{word} is a command: its options go after it (toolrest {word} …)."
        return f"{super().unknown(word)} To send a message: toolrest -- {word} …"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands that people start with, in sections; all of them for `help all`."""
        if ctx.meta.get(SHOWS_ALL):
            super().format_commands(ctx, formatter)
            return
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<9}", self.known[name][1]) for name in names])
        formatter.write_paragraph()
        formatter.write_text("More commands: toolrest help all. One of them: toolrest help exec.")


def with_chat(words: list[str]) -> list[str]:
    """A command line with `chat` in front where it begins with a message or the chat's options."""
    first = words[0] if words else "--help"
    if first in ("--version", "-h", "--help"):
        return words
    is_message = any(map(str.isspace, first))
    return ["chat", *words] if is_message or first.startswith("-") else words


@click.group(
    cls=Root,
    known=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[COMMAND | MESSAGE]",
)
@click.version_option(__version__, message="toolrest %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """A coding agent for your terminal, and the Python library to build your own.

    \b
    toolrest                                  talk with a model about this folder
    toolrest "fix the failing test"           the same, with a first message
    toolrest --continue                       go on with the last session here
    toolrest -m MODEL -C DIR                  all options: toolrest help chat
    toolrest exec "why does the test fail?"   one task, for scripts and CI
    """
    if ctx.invoked_subcommand is not None:
        return
    if all(file is not None and file.isatty() for file in (sys.stdin, sys.stdout)):
        ctx.invoke(ctx.command.get_command(ctx, "chat"))  # type: ignore[attr-defined]
    else:
        click.echo(ctx.get_help())


def run() -> None:
    """Run the command line; Toolrest's own errors are one line on stderr and exit code 2."""
    try:
        sys.exit(app.main(prog_name="toolrest", standalone_mode=False))
    except click.Abort as error:  # Ctrl-C, or the end of input where an answer was wanted
        if error.__cause__ is None:  # else click has ended the line
            click.echo(err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ToolrestError as error:
        click.echo(f"toolrest: {error}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        click.echo(f"toolrest: this needs more packages: pip install 'toolrest[{extra}]'", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # The reader (head, less) went away. Closing quietly is what a Unix tool does.
        sys.stderr.close()
        sys.exit(141)
