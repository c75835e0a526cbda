"""Options that several commands share, and a session made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from toolrest.own_code import import_only_own

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk

F = TypeVar("F", bound=Callable[..., Any])

SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access")
APPROVAL_MODES = ("untrusted", "on-request", "on-failure", "never")
_OTHER_MODES = ("auto", "strict", "dangerous", "none", "required", "sandbox")


SANDBOX_HELP = "Where tools and commands may write: nowhere, in the workspace, or everywhere."
APPROVAL_HELP = (
    "When to ask for approval: untrusted, never, on-failure or on-request (the default)."
)


class ApprovalMode(click.Choice[str]):
    """The four words that are shown; the words of other agents are read, too."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word as it is."""
        return value if value in _OTHER_MODES else super().convert(value, param, ctx)


config_option = click.option(
    "-c",
    "--config",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set any setting for this run; VALUE is TOML or plain text. Repeatable.",
)
profile_option = click.option(
    "-p", "--profile", metavar="NAME", help="Use the settings of the profile NAME."
)
model_option = click.option(
    "-m",
    "--model",
    metavar="[PROVIDER:]NAME",
    help="The model, by its name at the provider, for example openai:gpt-5.5.",
)


class Choices(Struct):
    """The values of the shared options."""

    folder: str | None
    sandbox: str | None
    approval: str | None
    overrides: tuple[str, ...]
    profile: str | None
    tools: str | None

    def load(self, more: Mapping[str, Any] | None = None) -> Config:
        """The settings for these options, and for `more` flags by their dotted names."""
        from toolrest.agent.path_policy import default_workspace, tool_roots
        from toolrest.config.loader import load

        flags: dict[str, Any] = {"sandbox_mode": self.sandbox, "approval_policy": self.approval}
        flags |= more or {}
        if self.tools is not None:
            flags["tools.enabled"] = [
                name.strip() for name in self.tools.split(",") if name.strip()
            ]
        config = load(
            workspace=default_workspace(self.folder),
            overrides=self.overrides,
            profile=self.profile,
            surface="cli",
            flags=flags,
        )
        import_only_own(tool_roots(config))
        return config

    def open(self, on_ask: OnAsk | None = None) -> Toolrest:
        """A session for these options, with the user's own tools in it."""
        from toolrest.agent.rest import Toolrest

        config = self.load()
        if config.warnings:
            from toolrest.cli.terminal.notices import print_warnings

            print_warnings(config)
        rest = Toolrest(config.workspace or ".", config=config, on_ask=on_ask)
        for problem in rest.warnings:
            click.echo(f"toolrest: {problem}", err=True)
        return rest


def session_options(function: F) -> F:
    """Add -C, -s, -a, -c, --profile and --tools; the command gets them as one `Choices`."""

    @wraps(function)  # carries the options that were added before
    def wrapped(
        folder: str | None,
        sandbox: str | None,
        approval: str | None,
        overrides: tuple[str, ...],
        profile: str | None,
        tools: str | None,
        **rest: Any,
    ) -> Any:
        return function(Choices(folder, sandbox, approval, overrides, profile, tools), **rest)

    options: list[Callable[[Any], Any]] = [
        click.option(
            "-C",
            "--cd",
            "folder",
            metavar="DIR",
            help="Work in this folder instead of the current one.",
        ),
        click.option("-s", "--sandbox", type=click.Choice(SANDBOX_MODES), help=SANDBOX_HELP),
        click.option(
            "-a",
            "--ask-for-approval",
            "approval",
            type=ApprovalMode(APPROVAL_MODES),
            metavar="MODE",
            help=APPROVAL_HELP,
        ),
        config_option,
        profile_option,
        click.option(
            "--tools",
            metavar="NAMES",
            help="Offer only these tools: names, groups or globs, separated by commas.",
        ),
    ]
    decorated: Any = wrapped
    for option in reversed(options):
        decorated = option(decorated)
    result: F = decorated
    return result
