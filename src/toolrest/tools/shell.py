"""`shell`: run one program, given as a list of arguments; and its older spellings."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.limits import formatted_truncate
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects
from toolrest.process import layout
from toolrest.tools.command_run import Finished, run_once
from toolrest.tools.commands import (
    CommandTool,
    Escalation,
    OptionalPermissions,
    Surroundings,
)


class Shell(CommandTool):
    """The array form: nothing is added to the argument vector."""

    name = "shell"
    aliases = ("container.exec", "local_shell")
    typical = Effects(runs=(("<command>",),), confined=True)

    def __init__(self, surroundings: Surroundings, *, offered: bool = True) -> None:
        self.offered = offered
        self.description = (
            "Run a program and return its output. `command` is the exact argument vector; use "
            '["bash", "-lc", "..."] for a command line. ' + surroundings.words()
        )

    class Args(Escalation):
        """Parameters."""

        command: list[str] = Field(description="The program and its arguments.")
        workdir: str | None = Field(default=None, description="The folder to run in.")
        timeout_ms: int | None = Field(
            default=None,
            ge=0,
            validation_alias=AliasChoices("timeout_ms", "timeout"),
            serialization_alias="timeout_ms",
            description="After how many milliseconds to give up; 10000 when left out.",
        )
        sandbox_permissions: OptionalPermissions
        description: str | None = Field(
            default=None, description="What the command is for, in a few words."
        )

    def script(self, args: Args) -> str | tuple[str, ...]:
        """What the model wrote."""
        return tuple(args.command)

    def argv(self, args: Args, ctx: Context) -> tuple[str, ...]:
        """Exactly what was given."""
        if not args.command:
            raise RespondToModel(
                "command args are empty", kind="input_invalid", fields=("command",)
            )
        return tuple(args.command)

    async def start(self, args: Args, ctx: Context) -> ToolOutput:
        """Run it and lay the result out as JSON."""
        seconds = (10_000 if args.timeout_ms is None else args.timeout_ms) / 1000
        cwd = ctx.runner.workdir(args.workdir)
        env = await self.more_env(args, cwd, ctx)
        return await run_once(
            ctx,
            lambda delta: ctx.runner.run(
                tuple(args.command),
                cwd,
                seconds=seconds,
                outside=ctx.outside,
                on_delta=delta,
                more_env=env,
            ),
            command=tuple(args.command),
            cwd=cwd,
            lay_out=_structured,
        )

    def aborted_text(self, seconds: float) -> str:
        """Two lines, as models know them from this tool."""
        return f"Wall time: {seconds:.1f} seconds\naborted by user"


def _structured(done: Finished, ctx: Context) -> str:
    shown = formatted_truncate(done.body, ctx.limit)
    return layout.structured(shown, done.code, done.seconds)


class LocalShell(Shell):
    """The hosted kind: offered by type alone, called with `local_shell_call` items."""

    name = "local_shell"
    aliases = ("container.exec", "shell")
    kind = "local_shell"
