"""The walk of one call, left to right, and back with exactly one output.

route → validate → effects → schedule → decide → run → limit, redact → events.
Whatever goes wrong on the way becomes an output; nothing leaves here as an exception.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
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
from toolrest.gate.arguments import Decoded
from toolrest.gate.asking import may_retry, request_for
from toolrest.gate.context import Context, Services
from toolrest.gate.deadline import Deadline, Deadlines
from toolrest.gate.decide import Decider, Decision
from toolrest.gate.files import hash_file
from toolrest.gate.judge import judge_call
from toolrest.gate.limits import Limited, Limiter
from toolrest.gate.loops import LoopWatch
from toolrest.gate.mended import noted, refuse_mended
from toolrest.gate.output import checked, to_output
from toolrest.gate.registry import Registry
from toolrest.gate.review import Review
from toolrest.gate.router import Route, route
from toolrest.gate.scheduler import Scheduler, Ticket
from toolrest.gate.stale import note_written, refuse_moved, refuse_stale
from toolrest.gate.threads import Abandoned
from toolrest.gate.tool import Tool
from toolrest.items import CallItem, JSONObject, Text, ToolOutput
from toolrest.policy.effects import Effects, Risk
from toolrest.policy.fingerprint import fingerprint

if TYPE_CHECKING:
    from toolrest.gate.hooks import Hooked
    from toolrest.gate.turn import Turn
    from toolrest.gate.walk_hooks import HookedWalks

Source: TypeAlias = Literal["policy", "user", "config", "hook"]

_NOTHING = Effects.none()
_LARGE = 1 << 20
_QUICK_HASH = 8 << 20

RETRY_REASON = "command failed; retry without sandbox?"
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
    deadlines: Deadlines = field(default_factory=Deadlines)
    default_timeout: float | None = None
    max_calls: int | None = None
    calls_made: int = 0
    turns_made: int = 0
    sync_soon: Callable[[], None] | None = None
    """Starts putting what was decided on disk."""
    hooks: HookedWalks | None = None


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
    effects: Effects = _NOTHING
    files: Sequence[FileChange] = ()
    ticket: Ticket | None = None
    ended: bool = False
    aborting: bool = False
    decided: bool = False
    looping: bool = False
    deadline: Deadline | None = None
    ctx: Context | None = None
    limited: Limited | None = None
    note: str = ""
    """What the model should know about how its call was answered."""
    approved: bool = False
    """Somebody was asked about this very call, and said yes."""
    refused: Fatal | None = None
    """Set when the turn had already failed before this call came."""
    route: Route | None = None
    hooked: Hooked | None = None
    ran: Ready | None = None
    """Set when the tool itself was started."""
    parent: Walk | None = None
    """The call whose tool made this one."""
    deliver: Callable[[ToolOutput], None] = _nowhere
    """Takes the output: at the end, or before it for work that will not stop."""

    @property
    def name(self) -> str:
        """The tool's own name, or what the model called it."""
        return self.tool.name if self.tool is not None else self.item.name

    async def run(self) -> None:
        """Take the call through the gate and deliver its one output."""
        outer = _current.get()
        self.parent = outer if outer is not None and outer.gate is self.gate else None
        token = _current.set(self)
        try:
            call = self._enter()
            if self.gate.hooks is not None:
                call = await self.gate.hooks.before(self, call)
            output = await self._scheduled(call)
            if self.aborting and output.failure is None:
                output = self.aborted("the work finished all the same")
        except asyncio.CancelledError:
            output = self._cancelled()
        except Abandoned:
            output = self.aborted(LEFT_BEHIND)
        except ToolCallError as error:
            output = self._failed(error)
        except AuditError as error:
            output = self._fatal(error)
        except (Exception, SystemExit) as error:
            # A tool that calls sys.exit() ends itself, not the program that called it.
            output = ToolOutput.error(f"{self.name} failed: {_words(error)}")
        finally:
            _current.reset(token)
        if self.gate.hooks is not None:
            output = await self._after_hooks(output, self.gate.hooks)
        self.deliver(self.end(output))

    async def _after_hooks(self, output: ToolOutput, hooks: HookedWalks) -> ToolOutput:
        if self.ended or self.aborting:
            return output
        try:
            told = await hooks.finish(self, output)
        except asyncio.CancelledError:
            return self.aborted("the work finished all the same")
        except AuditError as error:
            return self._fatal(error)
        if told is not output:
            self.limited = None
        return told

    def _cancelled(self) -> ToolOutput:
        task = asyncio.current_task()
        if self.aborting or (task is not None and task.cancelling()):
            return self.aborted()
        return ToolOutput.error(f"{self.name} failed: it cancelled itself")

    def _failed(self, error: ToolCallError) -> ToolOutput:
        if isinstance(error, Fatal):
            self.turn.fail(error)
        if not self.decided:
            try:
                self._note_refusal(error)
            except AuditError as problem:
                return self._fatal(problem)
        return ToolOutput.error(error.message, error.kind, error.fields)

    def _note_refusal(self, error: ToolCallError) -> None:
        """A call that never came to a decision has its line in the audit log all the same."""
        services = self.gate.services
        services.bus.emit(
            ToolCallDecision(
                call_id=self.call_id,
                tool=self.name,
                arguments=self.arguments or _raw_arguments(self.item, services),
                fingerprint=self.fingerprint,
                verdict="deny",
                rule=error.kind,
                risk="none",
                reason=services.redactor.redact(error.message),
                turn_id=self.turn.id,
            )
        )

    def abort(self) -> None:
        """Somebody wants this call gone: from now on its own deadline is off."""
        self.aborting = True
        if self.deadline is not None:
            self.deadline.stop()

    # 1: which tool, which arguments, what will it touch

    def _enter(self) -> Ready:
        gate = self.gate
        unknown: tuple[str, ...] = ()
        try:
            self._count()
            found = route(self.item, gate.registry)
            decoded = self._decode(found)
            unknown = decoded.unknown
        except RecursionError:
            raise RespondToModel("arguments are nested too deeply", kind="input_invalid") from None
        finally:
            self._begin(unknown)
        return self._understood(found.tool, decoded.args)

    def _decode(self, found: Route) -> Decoded:
        self.route, self.tool = found, found.tool
        self.arguments = self.gate.services.redactor.redact(found.text)
        self.fingerprint = fingerprint_of(found)
        return found.decode()

    def _understood(self, tool: Tool, args: Any) -> Ready:
        ctx = self.ctx = Context(self.gate.services, self.call_id, tool.name, self.turn.id)
        self.effects = canonical_effects(tool.effects(args, ctx), ctx)
        if getattr(self.item, "repaired", ()):
            refuse_mended(self.item, self.effects, self.arguments)
        return Ready(tool, args, ctx, self.effects, tool.level(self.effects))

    def rewrite(self, values: JSONObject) -> Ready:
        """The call with other arguments, as if the model had sent them."""
        if self.route is None:
            raise RespondToModel("there is no call to change")
        found = self.route.with_input(values)
        return self._understood(found.tool, self._decode(found).args)

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
        if self.refused is not None:
            raise Rejected(f"not run: the turn has failed: {self.refused}", kind="fatal")
        gate.calls_made += 1
        if gate.max_calls is not None and gate.calls_made > gate.max_calls:
            raise Rejected(
                f"not run: this session may make {gate.max_calls} tool calls "
                "(max_calls_per_session)"
            )

    # 2: when, and whether

    async def _scheduled(self, call: Ready) -> ToolOutput:
        if not self.is_part_of_another():
            scheduler = self.gate.scheduler
            self.ticket = scheduler.enter(call.effects)
            await scheduler.wait(self.ticket)
        if call.effects.writes:
            await refuse_stale(call.effects.writes, call.ctx, self.gate.services)
        if call.tool.prepares:
            await call.tool.prepare(call.args, call.ctx)
        decision = self._decide(call)
        if self.gate.hooks is not None:
            decision = self.gate.hooks.decided(self, call, decision)
        self._say(call, decision)
        if decision.verdict == "deny":
            raise Rejected(decision.reason)
        if decision.verdict == "ask":
            review = await self._ask(call, decision)
            # Neither a yes to later calls as well nor a hook's speaks for a second try of this one.
            self.approved = review is not None and review.answer == "approved"
        # Only here, after somebody said yes or a rule of the user's, may a call leave the sandbox.
        call.ctx.outside = decision.leaves
        output = await self._run_decided(call)
        if self.note:
            output = replace(output, notes=[*output.notes, self.note])
        if len(output.text) > _LARGE:
            # Redacting and cutting a large text takes long enough to hold up everybody else.
            self.limited = await call.ctx.in_thread(self._limit, output)
        return output

    def is_part_of_another(self) -> bool:
        """A call that a running tool makes belongs to that tool's own call: it has the place."""
        return self.parent is not None and not self.parent.ended

    async def _run_decided(self, call: Ready) -> ToolOutput:
        self.ran = call
        if not call.effects.mutating:
            return await self._attempt(call)
        await self.turn.before_mutation(call.effects, f"{self.name} {self.arguments}")
        if self.gate.sync_soon is not None:
            self.gate.sync_soon()
        return await self._escalating(call)

    async def _escalating(self, call: Ready) -> ToolOutput:
        """Run it; if the sandbox blocked it and the mode allows asking, once more outside.

        Who was asked about this very call was told so, and is not asked again; a yes from
        earlier does not reach outside.
        """
        try:
            return await self._watched(call)
        except SandboxDenied as denied:
            if call.ctx.outside or not may_retry(self.gate, call):
                return _denied(denied)
            if not (self.approved and call.tool.skips_second_question):
                question = Decision("ask", "sandbox.retry", RETRY_REASON, leaves=True)
                try:
                    await self._ask(call, question, retry=True)
                except Rejected:
                    return _denied(denied)
            call.ctx.outside = True
            return await self._watched(call)

    def _decide(self, call: Ready) -> Decision:
        self.decided = True
        if not call.tool.polling:
            refusal = self.gate.loops.refusal(self.fingerprint)
            if refusal is not None:
                self.looping = True
                return Decision("deny", "loop", refusal)
        decision = judge_call(self.gate, call, self.fingerprint)
        taint = self.gate.services.taint
        if not taint.external:
            return decision
        return taint.judge(call, decision, self.gate.decider.mode)

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
                sandbox="confined" if call.effects.confined else "none",
                turn_id=self.turn.id,
            )
        )

    async def _ask(self, call: Ready, decision: Decision, *, retry: bool = False) -> Review | None:
        """The yes, or None when it was a hook's; anything else is raised."""
        gate = self.gate
        request = request_for(self, call, decision, retry=retry)
        review: Review | None = None
        by: Source = "hook"
        try:
            if gate.hooks is None or not await gate.hooks.answered(self, call, request):
                by = "user"
                review = await gate.services.approvals.ask(request, self.turn.id)
        except ToolCallError as error:
            self._say(call, Decision("deny", decision.rule, error.message), source=by)
            error.message = call.tool.rejected_text(error.message)
            raise
        reason = decision.reason
        if gate.services.memory is not None and review is not None:
            kept = gate.services.memory.keep(request, review)
            reason = f"{reason}; {kept.problem}" if kept.problem else reason
            self.note = kept.note
        self._say(call, Decision("allow", decision.rule, reason), source=by)
        return review

    def refused_by_hook(
        self, call: Ready, rule: str, words: str, ends_turn: bool = False
    ) -> ToolCallError:
        """What to raise when a hook says no; it has its line in the audit log."""
        self.decided = True
        self._say(call, Decision("deny", rule, words), source="hook")
        return Fatal(words, kind="policy_denied") if ends_turn else Rejected(words)

    # 3: run it

    async def _watched(self, call: Ready) -> ToolOutput:
        """Run a call that declares writes, with a hash of each file before and after."""
        paths = call.effects.writes
        if not paths:
            return await self._attempt(call)
        # Again: somebody may have taken their time to say yes.
        await refuse_stale(paths, call.ctx, self.gate.services)
        refuse_moved(paths, call.ctx)
        before = await call.ctx.in_thread(_hash_all, paths)
        try:
            output = await self._attempt(call)
        except BaseException:
            # No waiting here: a cancelled call must end now. A large file is not worth it.
            self._changed(before, _hash_all(paths, _QUICK_HASH))
            raise
        after = await call.ctx.in_thread(_hash_all, paths)
        self._changed(before, after)
        if output.success is not False:
            note_written(after, self.gate.services)
        return output

    def _changed(self, before: dict[str, str | None], after: dict[str, str | None]) -> None:
        self.files = [FileChange(path, before[path], after[path]) for path in before]

    async def _attempt(self, call: Ready) -> ToolOutput:
        own = call.tool.timeout
        seconds = own if own is not None else self.gate.default_timeout
        if seconds is None:
            return await self._perform(call)
        deadline = self.deadline = self.gate.deadlines.start(seconds, self.leave_behind)
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
                        final = checked(piece, tool.name)
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
        if self.ctx is not None:
            self.ctx.close()
        if self.ran is not None:
            self.gate.services.taint.note(self.ran, output)
        if self.ticket is not None:
            self.gate.scheduler.release(self.ticket)
        try:
            if getattr(self.item, "repaired", ()):
                output = noted(self.item, output)
            limited = self.limited or self._limit(output)
        except Exception as error:
            limited = Limited(self._fatal(error), False, 0, None)
        if output.secrets:
            # The model has read them; whatever is told or written from here on has not.
            self.gate.services.redactor.learn(output.secrets)
        try:
            self._tell_end(limited)
        except AuditError as error:
            return self._fatal(error)
        return limited.output

    def _limit(self, output: ToolOutput) -> Limited:
        """Nudge, redact, cut, spill; in a thread when there is much of it."""
        tool = self.tool
        if tool is not None and self.fingerprint and not tool.polling and not self.looping:
            output = self._watch_loop(output)
        return self.gate.limiter.apply(
            output,
            call_id=self.call_id,
            tool=self.name,
            ceiling=tool.max_chars if tool else None,
        )

    def _tell_end(self, limited: Limited) -> None:
        output = limited.output
        failure = output.failure
        self.gate.services.bus.emit(
            ToolCallEnd(
                call_id=self.call_id,
                tool=self.name,
                success=output.success,
                failure=failure.kind if failure else None,
                duration=monotonic() - self.started,
                bytes=limited.total_bytes,
                output=self._told(output) if output.secrets else output.text,
                truncated=limited.truncated,
                spill=limited.spill,
                exit_code=output.metadata.get("exit_code"),
                sandbox=str(output.metadata.get("sandbox", "none")),
                files=self.files,
                fields=failure.fields if failure else (),
                turn_id=self.turn.id,
            )
        )

    def _told(self, output: ToolOutput) -> str:
        return self.gate.services.redactor.redact(output.text)

    def _watch_loop(self, output: ToolOutput) -> ToolOutput:
        if output.failure is not None and output.failure.kind in ("aborted", "approval_denied"):
            return output
        nudge = self.gate.loops.record(
            self.fingerprint, _seen(output), mutating=self.effects.mutating
        )
        if nudge is None:
            return output
        # A tool may return the same object every time: it is not ours to write on.
        return replace(output, notes=[*output.notes, nudge])


def _seen(output: ToolOutput) -> str:
    """What a model gets to see of an output: its text and its images."""
    if isinstance(output.content, str):
        return output.content
    return "\n".join(part.text if isinstance(part, Text) else part.url for part in output.content)


def _denied(error: SandboxDenied) -> ToolOutput:
    if isinstance(error.output, ToolOutput):
        return error.output
    return ToolOutput.error(error.message, error.kind)


_current: ContextVar[Walk | None] = ContextVar("toolrest_call", default=None)


def _timed_out(tool: Tool, seconds: float, note: str | None = None) -> ToolOutput:
    output = ToolOutput.error(f"{tool.name} timed out after {seconds:g} s", Timeout.kind)
    if note is not None:
        output.notes.append(note)
    return output


def _hash_all(paths: tuple[str, ...], most: int | None = None) -> dict[str, str | None]:
    return {path: hash_file(path, most) for path in paths}


def canonical_effects(effects: Effects, ctx: Context) -> Effects:
    """Two spellings of one path are one path to the scheduler and to the policy."""
    if not (effects.reads or effects.writes):
        return effects
    real = ctx.files.canonical
    reads = tuple(map(real, effects.reads))
    writes = tuple(map(real, effects.writes))
    if reads == effects.reads and writes == effects.writes:
        return effects
    return replace(effects, reads=reads, writes=writes)


def fingerprint_of(found: Route) -> str:
    """The short name of a call: the same tool with the same arguments has the same one."""
    return fingerprint(found.tool.name, found.text if found.freeform else _loads(found.text))


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _raw_arguments(item: CallItem, services: Services) -> str:
    for name in ("arguments", "input", "action", "image_path", "query"):
        value = getattr(item, name, None)
        if value is not None:
            return services.redactor.redact(value if isinstance(value, str) else _json(value))
    return ""


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that is not JSON"


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return f"{error.strerror} (os error {error.errno})"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
