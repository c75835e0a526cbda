"""`shell`: run one program, given as a list of arguments; and its older spellings."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.output.truncate import formatted_truncate
from toolrest.gate.tool.args_class import param
from toolrest.items import ToolOutput
from toolrest.policy.launch import Launch
from toolrest.process.output import layout
from toolrest.tools.shell.command_call import CommandCall
from toolrest.tools.shell.run_once import Finished, OneShot, OneShotTool, run_once

_LEAST = 16
"""Characters of an output below which the limit is too small for any JSON."""


class ShellTool(OneShotTool):
    """`shell`: the argument vector is run as it is."""

    name = "shell"
    aliases = ("container.exec", "local_shell")
    needs: ClassVar[tuple[str, ...]] = ("shell:shell", "shell:shell_command", "shell:unified_exec")
    offered_when = ("shell:shell",)
    introduction = (
        "Run a program and return its output. `command` is the exact argument vector; use "
        '["bash", "-lc", "..."] for a command line. '
    )

    class Args(OneShot):
        """Parameters."""

        command: list[str] = param(description="The program and its arguments.")
        description: str | None = param(
            default=None, description="What the command is for, in a few words."
        )

    def plan(self, args: Args, ctx: Context) -> Launch:
        """Plan exactly the given argument vector."""
        if not args.command or not args.command[0]:
            raise RespondToModel(
                "command args are empty", kind="input_invalid", fields=("command",)
            )
        return ctx.session.runner().plan(
            tuple(args.command), args.workdir, escalated=args.asks_to_leave()
        )

    async def start(self, call: CommandCall, launch: Launch) -> ToolOutput:
        """Run it and return the result as JSON."""
        return await run_once(call, launch, _structured)


def _structured(done: Finished, ctx: Context) -> str:
    """The result as JSON: its output is cut until all of it fits, as cut JSON would be none."""
    limiter = ctx.session.limiter
    limit = limiter.shown(ctx.tool)
    while True:
        shown = formatted_truncate(done.body, limit)
        text = layout.structured(shown, done.code, done.seconds)
        if limit.amount < _LEAST or limiter.holds(text, ctx.tool):
            return text
        limit = replace(limit, amount=limit.amount * 3 // 4)


class LocalShellTool(ShellTool):
    """The hosted shell: offered by its type alone, called with `local_shell_call` items."""

    name = "local_shell"
    aliases = ("container.exec", "shell")
    needs = offered_when = ("shell:local_shell",)
    kind = "local_shell"
