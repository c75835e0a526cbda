"""`shell_command`: run a command line in the user's shell."""

from __future__ import annotations

from toolrest.gate.context import Context
from toolrest.gate.output.limiter import truncate
from toolrest.gate.tool.args_class import param
from toolrest.items import ToolOutput
from toolrest.process.output import layout
from toolrest.tools.shell.command_tool import OneShot, OneShotTool, SandboxDescription
from toolrest.tools.shell.run_once import Finished, run_once


class ShellCommand(OneShotTool):
    """The text form."""

    name = "shell_command"

    def __init__(self, surroundings: SandboxDescription, *, offered: bool = True) -> None:
        self.offered = offered
        self.description = (
            "Run a command line in the user's shell and return its output. Set workdir instead "
            "of using cd. " + surroundings.words()
        )

    class Args(OneShot):
        """Parameters."""

        command: str = param(description="The command line.")
        login: bool = param(
            default=True, description="Whether the shell reads the user's profile first."
        )

    def script(self, args: Args) -> str | tuple[str, ...]:
        """What the model wrote."""
        return args.command

    def argv(self, args: Args, ctx: Context) -> tuple[str, ...]:
        """The user's shell with that line."""
        return ctx.runner.shells.default().argv(args.command, login=args.login)

    async def start(self, args: Args, ctx: Context) -> ToolOutput:
        """Run it and lay the result out as text."""
        cwd = ctx.runner.workdir(args.workdir)
        env = await self.more_env(args, cwd, ctx)
        return await run_once(
            ctx,
            lambda delta: ctx.runner.run_line(
                args.command,
                cwd,
                login=args.login,
                seconds=args.seconds,
                outside=ctx.outside,
                more_env=env,
                on_delta=delta,
            ),
            command=self.argv_once(args, ctx),
            cwd=cwd,
            lay_out=_freeform,
        )


def _freeform(done: Finished, ctx: Context) -> str:
    return layout.freeform(done.body, truncate(done.body, ctx.limit), done.code, done.seconds)
