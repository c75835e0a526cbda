"""`exec_command`: start a command line that may outlive the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.errors import RespondToModel
from toolrest.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta
from toolrest.gate.context import Context
from toolrest.gate.output.truncate import Limit, byte_length, formatted_truncate
from toolrest.gate.tool.args_class import param
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.launch import Launch
from toolrest.process.output import layout
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
    from collections.abc import Sequence

    from toolrest.gate.output.collector import Collector
    from toolrest.process.sessions.session import SessionEnd
    from toolrest.running.results import ExecOutcome

DEFAULT_TOKENS = 10_000
_SOURCE = "unified_exec_startup"


class ExecCommand(CommandTool):
    """`exec_command`, in a pipe or a terminal; what still runs after the yield can be polled."""

    name = "exec_command"
    needs = ("shell:unified_exec",)
    escalation_verb = "cannot"
    introduction = (
        "Run a command line. If it has not finished after yield_time_ms it goes on, and the "
        "result names a session ID for write_stdin. "
    )
    typical = Effects(runs=(("<cmd>",),), confined=True)

    class Args(Escalation):
        """Parameters."""

        cmd: str = param(description="The command line.")
        workdir: str | None = param(default=None, description="The folder to run in.")
        shell: str | None = param(
            default=None, description="The shell to use; the user's own when left out."
        )
        login: bool = param(
            default=True, description="Whether the shell reads the user's profile first."
        )
        tty: bool = param(
            default=False,
            description="Run in a terminal, so that write_stdin can type into it.",
        )
        yield_time_ms: int = param(
            default=10_000, ge=0, description="How long to wait for the end, 250 to 30000."
        )
        max_output_tokens: int = param(
            default=DEFAULT_TOKENS, ge=0, description="How much of the output to return."
        )
        sandbox_permissions: Permissions = param(
            default="use_default",
            description="require_escalated asks to run outside the sandbox; needs a justification.",
        )

    def plan(self, args: Args, ctx: Context) -> Launch:
        """Plan the chosen shell with this command line."""
        return ctx.session.runner().plan(
            args.cmd,
            args.workdir,
            shell=args.shell,
            login=args.login,
            unified=True,
            tty=args.tty,
            escalated=args.asks_to_leave(),
        )

    def wrap_patch(self, text: str) -> str:
        """The layout of a patch: a time and an output, no session."""
        return f"Wall time: 0.0000 seconds\nOutput:\n{text}"

    async def start(self, call: CommandCall, launch: Launch) -> ToolOutput:
        """Start the command, wait, and return its output and whether it still runs."""
        args, ctx = call.args, call.ctx
        ctx.delta = ExecCommandOutputDelta
        collector = ctx.collector()

        def started(session_id: int, pid: int) -> None:
            ctx.emit(
                ExecCommandBegin(
                    call_id=ctx.call_id,
                    command=launch.argv,
                    cwd=launch.cwd,
                    parsed_cmd=call.parsed,  # made while the program is busy starting
                    process_id=str(session_id),
                    source=_SOURCE,
                    withheld=launch.withheld,
                )
            )

        def ended(end: SessionEnd) -> None:
            collector.finish()
            ctx.emit_late(
                ExecCommandEnd(
                    call_id=ctx.call_id,
                    command=launch.argv,
                    cwd=launch.cwd,
                    parsed_cmd=call.parsed,
                    stdout=end.transcript,
                    stderr="",
                    aggregated_output=end.transcript,
                    exit_code=-1 if end.exit_code is None else end.exit_code,
                    duration=end.duration,
                    formatted_output=formatted_truncate(
                        end.transcript, Limit(args.max_output_tokens, "tokens")
                    ),
                    status="completed" if end.exit_code == 0 else "failed",
                    process_id=str(end.session_id),
                    source=_SOURCE,
                    withheld=launch.withheld,
                )
            )

        done = await call.runner.execute(
            launch,
            yield_ms=args.yield_time_ms,
            outside=ctx.outside,
            call_id=ctx.call_id,
            on_delta=ctx.output,
            on_start=started,
            on_bytes=collector.write,
            on_end=ended,
        )
        if done.result.state == "failed_to_start":
            raise RespondToModel(f"exec_command failed: {done.result.error}")
        if done.result.session_id is not None:
            running = (one.session_id for one in ctx.session.runner().sessions.list())
            ctx.session.open_commands.add(done.result.session_id, collector, running)
        notes: tuple[str, ...] = ()
        if launch.asked_shell:
            notes = (f"{launch.asked_shell} is not available: {launch.argv[0]} ran the line",)
        return answer(done, args.max_output_tokens, collector, way_out(ctx), notes)


def answer(
    done: ExecOutcome,
    tokens: int,
    collector: Collector | None,
    advice: str,
    notes: Sequence[str] = (),
) -> ToolOutput:
    """Lay out an output as exec_command and write_stdin return it."""
    result = done.result
    shown = formatted_truncate(result.text, Limit(tokens, "tokens"))
    collected = None
    if collector is not None and (result.omitted or not collector.fits(result.text)):
        collected = replace(collector.so_far(), shown_bytes=byte_length(shown))
    text = layout.unified(
        shown,
        chunk_id=result.chunk_id,
        wall_time=result.wall_time,
        original_bytes=result.original_bytes,
        exit_code=result.exit_code,
        session_id=result.session_id,
    )
    return finish(
        text,
        code=result.exit_code,
        signal=result.signal,
        backend=done.backend,
        notes=[*notes, *_notes(done)],
        blocked=done.blocked,
        advice=advice,
        collected=collected,
    )


def _notes(done: ExecOutcome) -> list[str]:
    result = done.result
    notes = []
    if result.signal is not None:
        notes.append(f"the command was ended by signal {result.signal}")
    if result.waiting_for_input:
        notes.append("the program is waiting for input; answer it with write_stdin")
    if result.background_pids:
        notes.append(f"{len(result.background_pids)} of its processes still run in the background")
    if result.binary:
        notes.append(result.binary)
    if result.warning:
        notes.append(result.warning)
    if result.evicted is not None:
        notes.append(f"session {result.evicted} was ended to make room")
    if result.exit_code:
        notes += withheld_notes(done.withheld, result.text)
    if done.hidden:
        notes.append(done.hidden)
    return notes + list(done.gaps)
