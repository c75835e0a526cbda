"""The walk of one call, left to right, and back with exactly one output.

route → validate → effects → schedule → decide → run → limit, redact → events.
Whatever goes wrong on the way becomes an output; nothing leaves here as an exception.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolrest.errors import (
    AuditError,
    Fatal,
    Rejected,
    RespondToModel,
    SandboxDenied,
    Timeout,
    ToolCallError,
)
from toolrest.events import FileChange, ToolCallBegin, ToolCallDecision, ToolCallEnd
from toolrest.gate.approval import ApprovalRequest
from toolrest.gate.context import Context, Services
from toolrest.gate.deadline import Deadline
from toolrest.gate.decide import Decider, Decision
from toolrest.gate.files import hash_file
from toolrest.gate.limits import Limiter
from toolrest.gate.loops import LoopWatch
from toolrest.gate.output import to_output
from toolrest.gate.registry import Registry
from toolrest.gate.router import route
from toolrest.gate.scheduler import Scheduler, Ticket
from toolrest.gate.threads import Abandoned
from toolrest.gate.tool import Tool
from toolrest.items import CallItem, ToolOutput
from toolrest.policy.effects import Effects, Risk
from toolrest.policy.fingerprint import fingerprint

if TYPE_CHECKING:
    from toolrest.gate.turn import Turn

Source: TypeAlias = Literal["policy", "user", "config"]

LEFT_BEHIND = "the work did not stop within 2 s of being cancelled and was left behind"


@dataclass(slots=True)
class Gate:
    """Everything that the calls of one session pass through."""

    services: Services
    registry: Registry
    decider: Decider
    limiter: Limiter
    scheduler: Scheduler = field(default_factory=Scheduler)
    loops: LoopWatch = field(default_factory=LoopWatch)
    default_timeout: float | None = None
    max_calls: int | None = None
    calls_made: int = 0
    turns_made: int = 0
    sync: Callable[[], None] | None = None
    """Puts what was decided on disk; may take a while."""

    async def settle(self, ctx: Context) -> None:
        """Return when the decision on a mutating call would survive a crash of the machine."""
        if self.sync is not None:
            await ctx.in_thread(self.sync)


def _nowhere(output: ToolOutput) -> None:
    """Drops an output: for walks that nobody waits for."""


@dataclass(slots=True)
class Ready:
    """A call that was understood: its tool, typed arguments, and what it will touch."""

    tool: Tool
    args: Any
    ctx: Context
    effects: Effects
    risk: Risk


@dataclass(slots=True)
class Walk:
    """One call on its way. Its fields are what later steps and the final event need."""

    gate: Gate
    item: CallItem
    turn: Turn
    call_id: str
    started: float = field(default_factory=monotonic)
    tool: Tool | None = None
    arguments: str = ""
    fingerprint: str = ""
    effects: Effects = field(default_factory=Effects.none)
    files: list[FileChange] = field(default_factory=list)
    ticket: Ticket | None = None
    ended: bool = False
    deliver: Callable[[ToolOutput], None] = _nowhere
    """Takes the output: at the end, or before it for work that will not stop."""

    @property
    def name(self) -> str:
        """The tool's own name, or what the model called it."""
        return self.tool.name if self.tool is not None else self.item.name

    async def run(self) -> None:
        """Take the call through the gate and deliver its one output."""
        try:
            output = await self._scheduled(self._enter())
        except asyncio.CancelledError:
            output = self.aborted()
        except Abandoned:
            output = self.aborted(LEFT_BEHIND)
        except ToolCallError as error:
            if isinstance(error, Fatal):
                self.turn.fail(error)
            output = ToolOutput.error(error.message, error.kind, error.fields)
        except AuditError as error:
            output = self._fatal(error)
        except Exception as error:
            output = ToolOutput.error(f"{self.name} failed: {_words(error)}")
        self.deliver(self.end(output))

    # 1: which tool, which arguments, what will it touch

    def _enter(self) -> Ready:
        gate = self.gate
        try:
            self._count()
            found = route(self.item, gate.registry)
            tool = self.tool = found.tool
            self.arguments = gate.services.redactor.redact(found.text)
            decoded = found.decode()
            raw = found.text if found.freeform else _loads(found.text)
            self.fingerprint = fingerprint(tool.name, raw)
        except ToolCallError:
            self._begin()
            raise
        except RecursionError:
            self._begin()
            raise RespondToModel("arguments are nested too deeply", kind="input_invalid") from None
        self._begin(decoded.unknown)
        ctx = Context(gate.services, self.call_id, tool.name, self.turn.id)
        self.effects = tool.effects(decoded.args, ctx)
        return Ready(tool, decoded.args, ctx, self.effects, tool.level(self.effects))

    def _begin(self, unknown: tuple[str, ...] = ()) -> None:
        services = self.gate.services
        services.bus.emit(
            ToolCallBegin(
                call_id=self.call_id,
                tool=self.name,
                arguments=self.arguments or _raw_arguments(self.item, services),
                unknown_fields=unknown,
                turn_id=self.turn.id,
            )
        )

    def _count(self) -> None:
        gate = self.gate
        gate.calls_made += 1
        if gate.max_calls is not None and gate.calls_made > gate.max_calls:
            raise Rejected(
                f"not run: this session may make {gate.max_calls} tool calls "
                "(tools.max_calls_per_session)"
            )

    # 2: when, and whether

    async def _scheduled(self, call: Ready) -> ToolOutput:
        scheduler = self.gate.scheduler
        self.ticket = scheduler.enter(call.effects)
        await scheduler.wait(self.ticket)
        await call.tool.prepare(call.args, call.ctx)
        decision = self._decide(call)
        self._say(call, decision)
        if decision.verdict == "deny":
            raise Rejected(decision.reason)
        if decision.verdict == "ask":
            await self._ask(call, decision)
        # Only here, after somebody said yes, may a call leave the sandbox.
        call.ctx.outside = call.effects.escalates is not None
        if not call.effects.mutating:
            return await self._attempt(call)
        await self.turn.before_mutation()
        await self.gate.settle(call.ctx)
        return await self._escalating(call)

    async def _escalating(self, call: Ready) -> ToolOutput:
        """Run it; if the sandbox blocked it and the mode allows asking, once more outside.

        A yes to running it inside is no yes to running it outside: this is always asked.
        """
        try:
            return await self._watched(call)
        except SandboxDenied as denied:
            if call.ctx.outside or not self.gate.decider.retries_outside:
                return _denied(denied)
            reason = "command failed; retry without sandbox?"
            try:
                await self._ask(call, Decision("ask", "sandbox.retry", reason))
            except Rejected:
                return _denied(denied)
            call.ctx.outside = True
            return await self._watched(call)

    def _decide(self, call: Ready) -> Decision:
        if not call.tool.polling:
            refusal = self.gate.loops.refusal(self.fingerprint)
            if refusal is not None:
                return Decision("deny", "loop", refusal)
        return self.gate.decider.decide(call.effects, call.risk)

    def _say(self, call: Ready, decision: Decision, source: Source = "policy") -> None:
        self.gate.services.bus.emit(
            ToolCallDecision(
                call_id=self.call_id,
                tool=call.tool.name,
                arguments=self.arguments,
                fingerprint=self.fingerprint,
                verdict=decision.verdict,
                rule=decision.rule,
                risk=call.risk.label,
                source=source,
                reason=decision.reason,
                keys=call.effects.keys(),
                mutating=call.effects.mutating,
                turn_id=self.turn.id,
            )
        )

    async def _ask(self, call: Ready, decision: Decision) -> None:
        request = ApprovalRequest(
            self.call_id,
            call.tool.name,
            self.arguments,
            decision.reason,
            call.risk,
            call.effects,
            call.effects.keys(),
        )
        try:
            await self.gate.services.approvals.ask(request, self.turn.id)
        except ToolCallError as error:
            self._say(call, Decision("deny", decision.rule, error.message), source="user")
            error.message = call.tool.rejected_text(error.message)
            raise
        self._say(call, Decision("allow", decision.rule, decision.reason), source="user")

    # 3: run it

    async def _watched(self, call: Ready) -> ToolOutput:
        """Run a call that declares writes, with a hash of each file before and after."""
        paths = call.effects.writes
        if not paths:
            return await self._attempt(call)
        before = await call.ctx.in_thread(_hash_all, paths)
        try:
            return await self._attempt(call)
        finally:
            after = _hash_all(paths)
            self.files = [FileChange(p, before[p], after[p]) for p in paths]

    async def _attempt(self, call: Ready) -> ToolOutput:
        own = call.tool.timeout
        seconds = own if own is not None else self.gate.default_timeout
        if seconds is None:
            return await self._perform(call)
        deadline = Deadline(seconds, self.leave_behind)
        try:
            return await self._perform(call)
        except asyncio.CancelledError:
            if not deadline.take():
                raise
            return _timed_out(call.tool, seconds)
        except Abandoned:
            if not deadline.take():
                raise
            return _timed_out(call.tool, seconds, LEFT_BEHIND)
        finally:
            deadline.stop()

    async def _perform(self, call: Ready) -> ToolOutput:
        try:
            value = await call.tool.run(call.args, call.ctx)
            if isinstance(value, AsyncIterator):
                return await self._collect(value, call)
            return to_output(value, call.tool.name)
        finally:
            call.ctx.end_output()

    async def _collect(self, pieces: AsyncIterator[Any], call: Ready) -> ToolOutput:
        """A streaming tool: each piece is shown as it comes; memory stays bounded."""
        tool, ctx = call.tool, call.ctx
        collector = self.gate.limiter.collector(self.call_id, tool.name, tool.max_chars)
        final: ToolOutput | None = None
        with collector:
            try:
                async for piece in pieces:
                    if isinstance(piece, ToolOutput):
                        final = piece
                        continue
                    text = piece if isinstance(piece, str) else to_output(piece, tool.name).text
                    ctx.show(collector.write(text))
            finally:
                close = getattr(pieces, "aclose", None)
                if close is not None:
                    await close()
        collected = collector.finish()
        if final is not None:
            return final
        return ToolOutput(collected.text, metadata={"collected": collected.summary()})

    # 4: the answer

    def aborted(self, note: str | None = None) -> ToolOutput:
        """What a cancelled call is answered with."""
        seconds = max(monotonic() - self.started, 0.1)
        text = (
            self.tool.aborted_text(seconds)
            if self.tool is not None
            else f"aborted by user after {seconds:.1f}s"
        )
        output = ToolOutput.error(text, "aborted")
        output.success = None
        if note is not None:
            output.notes.append(note)
        return output

    def leave_behind(self, seconds: float | None = None) -> None:
        """Answer for work that does not stop when it is told to: cancelled, or out of time."""
        if self.ended:
            return
        if seconds is None or self.tool is None:
            output = self.aborted(LEFT_BEHIND)
        else:
            output = _timed_out(self.tool, seconds, LEFT_BEHIND)
        self.deliver(self.end(output))

    def _fatal(self, error: Exception) -> ToolOutput:
        fatal = Fatal(f"{self.name} stopped: {error}")
        self.turn.fail(fatal)
        return ToolOutput.error(fatal.message, "fatal")

    def end(self, output: ToolOutput) -> ToolOutput:
        """Cut, redact, tell. After this the call is over, whatever its work still does."""
        if self.ended:
            return output
        self.ended = True
        gate, tool = self.gate, self.tool
        if self.ticket is not None:
            gate.scheduler.release(self.ticket)
        try:
            if tool is not None and self.fingerprint and not tool.polling:
                self._watch_loop(output)
            limited = gate.limiter.apply(
                output,
                call_id=self.call_id,
                tool=self.name,
                ceiling=tool.max_chars if tool else None,
            )
            output = limited.output
            gate.services.bus.emit(
                ToolCallEnd(
                    call_id=self.call_id,
                    tool=self.name,
                    success=output.success,
                    failure=output.failure.kind if output.failure else None,
                    duration=monotonic() - self.started,
                    bytes=limited.total_bytes,
                    output=output.text,
                    truncated=limited.truncated,
                    spill=limited.spill,
                    exit_code=output.metadata.get("exit_code"),
                    files=self.files,
                    fields=output.failure.fields if output.failure else (),
                    turn_id=self.turn.id,
                )
            )
        except Exception as error:
            return self._fatal(error)
        return output

    def _watch_loop(self, output: ToolOutput) -> None:
        if output.failure is not None and output.failure.kind in ("aborted", "approval_denied"):
            return
        nudge = self.gate.loops.record(
            self.fingerprint, output.text, mutating=self.effects.mutating
        )
        if nudge is not None:
            output.notes.append(nudge)


def _denied(error: SandboxDenied) -> ToolOutput:
    if isinstance(error.output, ToolOutput):
        return error.output
    return ToolOutput.error(error.message, error.kind)


def _timed_out(tool: Tool, seconds: float, note: str | None = None) -> ToolOutput:
    output = ToolOutput.error(f"{tool.name} timed out after {seconds:g} s", Timeout.kind)
    if note is not None:
        output.notes.append(note)
    return output


def _hash_all(paths: tuple[str, ...]) -> dict[str, str | None]:
    return {path: hash_file(path) for path in paths}


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _raw_arguments(item: CallItem, services: Services) -> str:
    for name in ("arguments", "input", "action", "image_path", "query"):
        value = getattr(item, name, None)
        if value is not None:
            return services.redactor.redact(value if isinstance(value, str) else repr(value))
    return ""


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return f"{error.strerror} (os error {error.errno})"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
