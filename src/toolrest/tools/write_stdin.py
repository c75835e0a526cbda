"""`write_stdin`: type into a command that still runs, or ask how it goes."""

from __future__ import annotations

from pydantic import BaseModel, Field

from toolrest.errors import RespondToModel
from toolrest.events import TerminalInteraction
from toolrest.gate.arguments import LAZY
from toolrest.gate.context import Context
from toolrest.gate.tool import Group, Tool
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.exec_command import DEFAULT_TOKENS, answer


class WriteStdin(Tool):
    """Calls on one session run one after the other; different sessions do not wait."""

    name = "write_stdin"
    group: Group = "shell"
    description = (
        "Type characters into a command that exec_command left running, then return what it "
        "printed. Without chars it only waits and looks. Sessions started with tty=false take no "
        "input, except \\u0003 to interrupt."
    )
    typical = Effects(
        runs=(("<session>",),), serial=("exec:<session_id>",), exclusive=False, confined=True
    )
    polling = True

    class Args(BaseModel):
        """Parameters."""

        model_config = LAZY

        session_id: int = Field(description="The number that exec_command returned.")
        chars: str = Field(default="", description="What to type; \\u0003 is Ctrl-C.")
        yield_time_ms: int = Field(
            default=250, ge=0, description="How long to wait for output, 250 to 30000."
        )
        max_output_tokens: int = Field(
            default=DEFAULT_TOKENS, ge=0, description="How much of the output to return."
        )

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Goes on with a command that was decided on when it started."""
        return Effects(
            runs=(("write_stdin", str(args.session_id)),),
            serial=(f"exec:{args.session_id}",),
            exclusive=False,
            confined=True,
        )

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Type, wait, and say what came."""
        try:
            done = await ctx.runner.write(
                args.session_id, args.chars, yield_ms=args.yield_time_ms, on_delta=ctx.output
            )
        except RespondToModel as error:
            message = f"write_stdin failed: {error.message}"
            raise RespondToModel(message, kind=error.kind, fields=error.fields) from None
        ctx.emit(
            TerminalInteraction(
                call_id=ctx.call_id,
                process_id=str(args.session_id),
                stdin=ctx.redact(args.chars),
            )
        )
        return answer(done, args.max_output_tokens)
