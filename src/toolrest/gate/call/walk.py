"""The walk of one call, left to right, and back with exactly one output.

route → validate → effects → schedule → decide → run → limit, redact → events.
Whatever goes wrong on the way becomes an output; nothing leaves here as an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from toolrest.errors import AuditError, Fatal, Rejected, RespondToModel, ToolCallError, os_words
from toolrest.gate.call.attempt import LEFT_BEHIND, timed_out
from toolrest.gate.call.report import emit_begin, emit_end, emit_refusal
from toolrest.gate.call.steps import take_steps
from toolrest.gate.call.understand import (
    ResolvedCall,
    Route,
    canonical_effects,
    fingerprint_of,
    not_offered,
    refuse_repaired,
    route,
    with_repair_note,
)
from toolrest.gate.context import Context
from toolrest.gate.output.limiter import Limited
from toolrest.gate.threads import Abandoned
from toolrest.gate.tool.arguments import Decoded
from toolrest.gate.tool.tool import Tool
from toolrest.items import CallItem, JSONObject, ToolOutput
from toolrest.policy.effects import Effects

if TYPE_CHECKING:
    from toolrest.events import FileChange
    from toolrest.gate.call.deadlines import Deadline
    from toolrest.gate.call.schedule import Ticket
    from toolrest.gate.call.turn import Turn
    from toolrest.gate.decision.decide import Decision
    from toolrest.gate.hooks.hooks import Hooked
    from toolrest.gate.session import Session

_NOTHING = Effects.none()
_LARGE = 1 << 20
_LONG = 1 << 13


def _nowhere(output: ToolOutput) -> None:
    """Drop an output, for calls whose output is not awaited."""


class Walk(Struct):
    """One call on its way. Its fields are what later steps and the final event need."""

    session: Session
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
    call: ResolvedCall | None = None
    decision: Decision | None = None
    decided: bool = False
    changed: str = ""
    """The difference, found at the last moment, from what was judged before."""
    looping: bool = False
    deadline: Deadline | None = None
    task: asyncio.Task[None] | None = None
    ctx: Context | None = None
    limited: Limited | None = None
    note: str = ""
    """A note for the model about its call's approval."""
    approved: bool = False
    """This very call was approved by a one-off approval."""
    refused: Fatal | None = None
    """Set when the turn had already failed before this call came."""
    route: Route | None = None
    hooked: Hooked | None = None
    ran: ResolvedCall | None = None
    """Set when the tool itself was started."""
    parent: Walk | None = None
    """The call whose tool made this one."""
    deliver: Callable[[ToolOutput], None] = _nowhere
    """Takes the output: at the end, or before it for work that will not stop."""

    @property
    def name(self) -> str:
        """The tool's own name, or what the model called it."""
        return self.tool.name if self.tool is not None else self.item.name

    @property
    def understood(self) -> ResolvedCall:
        """The call, once its tool, arguments and effects are known."""
        if self.call is None:
            raise RespondToModel("there is no call to run")
        return self.call

    async def run(self) -> None:
        """Take the call through the gate and deliver its one output."""
        outer = _current.get()
        self.parent = outer if outer is not None and outer.session is self.session else None
        token = _current.set(self)
        try:
            self.call = await self._enter()
            output = await self._finished(await take_steps(self))
            if self.aborting and output.failure is None:
                output = self.aborted("the work finished all the same")
        except asyncio.CancelledError:
            output = self._cancelled()
        except Abandoned:
            output = self.aborted(LEFT_BEHIND)
        except ToolCallError as error:
            output = self._failed(error)
        except AuditError as error:
            output = self.fatal(error)
        except (Exception, SystemExit) as error:
            # A tool that calls sys.exit() ends itself, not the program that called it.
            output = ToolOutput.error(f"{self.name} failed: {_described(error)}")
        finally:
            _current.reset(token)
        if self.session.hooks is not None:
            output = await self.session.hooks.after(self, output)
        self.deliver(self.end(output))

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
                emit_refusal(self, error)
            except AuditError as problem:
                return self.fatal(problem)
        return ToolOutput.error(error.message, error.kind, error.fields)

    def abort(self) -> None:
        """Mark the call as aborted, which ends its own deadline."""
        self.aborting = True
        if self.deadline is not None:
            self.deadline.stop()

    # 1: which tool, which arguments, what will it touch

    async def _enter(self) -> ResolvedCall:
        unknown: tuple[str, ...] = ()
        try:
            self._count()
            found = self._routed()
            decoded = self._decode(found)
            unknown = decoded.unknown
        except RecursionError:
            raise RespondToModel("arguments are nested too deeply", kind="input_invalid") from None
        finally:
            emit_begin(self, unknown)
        tool, args = found.tool, decoded.args
        if self._takes_long(tool) and not self.is_part_of_another():
            # Its place in the queue is taken before; a call of that size runs alone.
            self.ticket = self.session.scheduler.enter(Effects.unknown())
        ctx = self._context(tool)
        return self._resolved(tool, args, ctx, await self.find_effects(tool, args, ctx))

    async def look(self) -> ResolvedCall:
        """The call as it would be made now; it is neither counted nor announced."""
        found = self._routed()
        tool, args, ctx = found.tool, self._decode(found).args, self._context(found.tool)
        return self._resolved(tool, args, ctx, await self.find_effects(tool, args, ctx))

    def _routed(self) -> Route:
        session = self.session
        found = route(self.item, session.registry, session.servers)
        if not (self.turn.reaches_all or session.registry.offers(found.tool)):
            raise not_offered(self.item.name)
        return found

    def _takes_long(self, tool: Tool) -> bool:
        return tool.slow_effects and self.route is not None and len(self.route.text) > _LONG

    async def find_effects(self, tool: Tool, args: Any, ctx: Context) -> Effects:
        """What the call will touch; worked out in a thread where that may take long."""
        if self._takes_long(tool):
            return await ctx.in_thread(tool.effects, args, ctx)
        return tool.effects(args, ctx)

    def _decode(self, found: Route) -> Decoded:
        self.route, self.tool = found, found.tool
        self.arguments = self.session.redactor.redact(found.text)
        self.fingerprint = fingerprint_of(found)
        return found.decode()

    def _context(self, tool: Tool) -> Context:
        self.ctx = Context(self.session, self.call_id, tool.name, self.turn.id, self.turn.state)
        return self.ctx

    def _resolved(self, tool: Tool, args: Any, ctx: Context, effects: Effects) -> ResolvedCall:
        self.effects = canonical_effects(effects, ctx)
        if getattr(self.item, "repaired", ()):
            refuse_repaired(self.item, self.effects, self.arguments)
        return ResolvedCall(tool, args, ctx, self.effects, tool.level(self.effects))

    def rewrite(self, values: JSONObject) -> ResolvedCall:
        """The call with other arguments, as if the model had sent them."""
        if self.route is None:
            raise RespondToModel("there is no call to change")
        found = self.route.with_input(values)
        args, ctx = self._decode(found).args, self._context(found.tool)
        return self._resolved(found.tool, args, ctx, found.tool.effects(args, ctx))

    def _count(self) -> None:
        if self.refused is not None:
            raise Rejected(f"not run: the turn has failed: {self.refused}", kind="fatal")
        self.session.quota.take()

    # 2: whether and when, in steps.py

    async def take_place(self, effects: Effects) -> None:
        """Wait for the scheduler: calls that conflict run one after the other, in call order."""
        if not self.is_part_of_another():
            if self.ticket is None:
                self.ticket = self.session.scheduler.enter(effects)
            await self.session.scheduler.wait(self.ticket)

    def give_up_place(self) -> None:
        """Let others run; the place that is taken next is behind them."""
        if self.ticket is not None:
            self.session.scheduler.release(self.ticket)
            self.ticket = None

    async def _finished(self, output: ToolOutput) -> ToolOutput:
        if self.note:
            output = replace(output, notes=[*output.notes, self.note])
        if len(output.text) > _LARGE:
            # Redacting and cutting a large text would hold up the event loop.
            self.limited = await self.understood.ctx.in_thread(self._limit, output)
        return output

    def is_part_of_another(self) -> bool:
        """Whether a running tool made this call: then it shares that call's place in the queue."""
        return self.parent is not None and not self.parent.ended

    # 3: the answer

    def aborted(self, note: str | None = None) -> ToolOutput:
        """The output of a cancelled call."""
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
        """Deliver an output for work that does not stop after a cancellation or time-out."""
        if self.ended:
            return
        if seconds is None or self.tool is None:
            output = self.aborted(LEFT_BEHIND)
        else:
            output = timed_out(self.tool, seconds, LEFT_BEHIND)
        self.deliver(self.end(output))

    def fatal(self, error: Exception) -> ToolOutput:
        """The output of a call whose failure also ends the turn."""
        fatal = Fatal(f"{self.name} stopped: {error}")
        self.turn.fail(fatal)
        return ToolOutput.error(fatal.message, "fatal")

    def end(self, output: ToolOutput) -> ToolOutput:
        """Cut, redact and emit the output. After this the call is over."""
        if self.ended:
            return output
        self.ended = True
        if self.ctx is not None:
            self.ctx.close()
        if self.ran is not None:
            self.session.taint.note(self.ran, output)
        if self.ticket is not None:
            self.session.scheduler.release(self.ticket)
        try:
            if getattr(self.item, "repaired", ()):
                output = with_repair_note(self.item, output)
            limited = self.limited or self._limit(output)
        except Exception as error:
            limited = Limited(self.fatal(error), False, 0, None)
        if output.secrets:
            # The model has read them; redact them from every later event and file.
            self.session.redactor.learn(output.secrets)
        try:
            emit_end(self, limited)
        except AuditError as error:
            return self.fatal(error)
        return limited.output

    def _limit(self, output: ToolOutput) -> Limited:
        """Add a loop note, redact, cut and spill the output; in a thread when it is large."""
        tool = self.tool
        if tool is not None and self.fingerprint and not tool.polling and not self.looping:
            output = self.turn.loops.watch(output, self.fingerprint, mutating=self.effects.mutating)
        return self.session.limiter.apply(
            output,
            call_id=self.call_id,
            tool=self.name,
            ceiling=tool.max_chars if tool else None,
        )


_current: ContextVar[Walk | None] = ContextVar("toolrest_call", default=None)


def _described(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno and error.strerror:
        return os_words(error)
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
