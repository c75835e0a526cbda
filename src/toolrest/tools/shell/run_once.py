"""Run a command to its end and turn the result into an output: for `shell` and `shell_command`."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from toolrest.errors import RespondToModel
from toolrest.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import param
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.launch import Launch
from toolrest.process.output import layout
from toolrest.process.output.head_tail import Piece
from toolrest.process.run import RunResult
from toolrest.tools.shell.command_call import CommandCall
from toolrest.tools.shell.command_tool import (
    CommandTool,
    Escalation,
    Permissions,
    finish,
    way_out,
    withheld_notes,
)

if TYPE_CHECKING:
    from toolrest.running.results import RunOutcome


class OneShot(Escalation):
    """Parameters of the tools that wait for a command's end."""

    workdir: str | None = param(default=None, description="The folder to run in.")
    timeout_ms: int | None = param(
        default=None,
        ge=0,
        also=("timeout",),
        description="After how many milliseconds to give up; 10000 when left out.",
    )
    sandbox_permissions: Permissions | None = param(
        default=None,
        description="require_escalated asks to run outside the sandbox; needs a justification.",
    )

    @property
    def seconds(self) -> float:
        """The time limit."""
        return (10_000 if self.timeout_ms is None else self.timeout_ms) / 1000


class OneShotTool(CommandTool):
    """A command tool that waits for the end; an abort is reported in two lines."""

    typical = Effects(runs=(("<command>",),), confined=True)

    def aborted_text(self, seconds: float) -> str:
        """The two lines that models know from these tools."""
        return f"Wall time: {seconds:.1f} seconds\naborted by user"


class Finished(Struct, frozen=True):
    """A finished command, for the layout of its output."""

    body: str
    code: int
    seconds: float


async def run_once(
    call: CommandCall, launch: Launch, lay_out: Callable[[Finished, Context], str]
) -> ToolOutput:
    """Run the command and lay out its output; SandboxDenied has the output when it was blocked."""
    ctx = call.ctx
    ctx.delta = ExecCommandOutputDelta
    begin = ExecCommandBegin(
        call_id=ctx.call_id,
        command=launch.argv,
        cwd=launch.cwd,
        parsed_cmd=call.parsed,
        withheld=launch.withheld,
    )
    ctx.emit(begin)
    began = monotonic()
    collector = ctx.collector()
    with collector:

        def show(stream: Literal["stdout", "stderr"], text: str) -> None:
            collector.write(text)
            ctx.output(text, stream)

        try:
            ran = await call.runner.run_once(
                launch, seconds=call.args.seconds, outside=ctx.outside, on_delta=show
            )
        except BaseException:  # cancelled: the programs are gone, and the command has an end
            text = collector.so_far().text
            piece = Piece(text.encode("utf-8", "replace"))
            cut = RunResult("signaled", stdout_piece=piece, duration=monotonic() - began)
            _end(ctx, begin, cut, text)
            raise
    result = ran.result
    if result.state == "failed_to_start":
        _end(ctx, begin, result, result.error or "")
        raise RespondToModel(f"execution error: {result.error}")
    code = 0 if result.exit_code is None else result.exit_code
    output = result.aggregated
    body = layout.body(output, result.duration if result.timed_out else None)
    text = lay_out(Finished(body, code, result.duration), ctx)
    _end(ctx, begin, result, text)
    return finish(
        text,
        code=code,
        signal=result.signal,
        timed_out=result.timed_out,
        backend=ran.backend,
        notes=_notes(ran, output, code),
        blocked=ran.blocked,
        advice=way_out(ctx),
        collected=collector.finish(),
    )


def _notes(ran: RunOutcome, output: str, code: int) -> list[str]:
    result = ran.result
    notes: list[str] = []
    if result.signal is not None and not result.timed_out:
        notes.append(f"the command was ended by signal {result.signal}")
    if result.background_pids:
        notes.append(f"{len(result.background_pids)} of its processes still run in the background")
    if result.survivors:
        pids = ", ".join(map(str, result.survivors))
        notes.append(f"could not be ended: processes {pids}")
    if code != 0:
        notes += withheld_notes(ran.withheld, output)
    if ran.hidden:
        notes.append(ran.hidden)
    return notes + list(ran.gaps)


def _end(ctx: Context, begin: ExecCommandBegin, result: RunResult, formatted: str) -> None:
    redact = ctx.redact
    ctx.emit(
        ExecCommandEnd(
            call_id=ctx.call_id,
            command=begin.command,
            cwd=begin.cwd,
            parsed_cmd=begin.parsed_cmd,
            stdout=redact(result.stdout),
            stderr=redact(result.stderr),
            aggregated_output=redact(result.aggregated),
            exit_code=-1 if result.exit_code is None else result.exit_code,
            duration=result.duration,
            formatted_output=redact(formatted),
            status="completed" if result.exit_code == 0 else "failed",
            withheld=begin.withheld,
        )
    )
