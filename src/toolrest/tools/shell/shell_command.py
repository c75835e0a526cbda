"""`shell_command`: run a command line in the user's shell."""

from __future__ import annotations

from toolrest.gate.context import Context
from toolrest.gate.output.truncate import truncate
from toolrest.gate.tool.args_class import param
from toolrest.items import ToolOutput
from toolrest.policy.launch import Launch
from toolrest.process.output import layout
from toolrest.tools.shell.command_call import CommandCall
from toolrest.tools.shell.run_once import Finished, OneShot, OneShotTool, run_once


class ShellCommand(OneShotTool):
    """`shell_command`: run a command line."""

    name = "shell_command"
    needs = ("shell:shell", "shell:shell_command", "shell:unified_exec", "shell:local_shell")
    offered_when = ("shell:shell_command",)
    introduction = (
        "Run a command line in the user's shell and return its output. Set workdir instead "
        "of using cd. "
    )

    class Args(OneShot):
        """Parameters."""

        command: str = param(description="The command line.")
        login: bool = param(
            default=True, description="Whether the shell reads the user's profile first."
        )

    def plan(self, args: Args, ctx: Context) -> Launch:
        """Plan the user's shell with this command line."""
        return ctx.session.runner().plan(
            args.command, args.workdir, login=args.login, escalated=args.asks_to_leave()
        )

    async def start(self, call: CommandCall, launch: Launch) -> ToolOutput:
        """Run it and return the result as text."""
        return await run_once(call, launch, _freeform)


def _freeform(done: Finished, ctx: Context) -> str:
    return layout.freeform(
        done.body, truncate(done.body, ctx.session.limiter.shown(ctx.tool)), done.code, done.seconds
    )
