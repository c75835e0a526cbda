"""The walk of one call, left to right, and back with exactly one output.

route → validate → effects → schedule → decide → run → limit, redact → events.
Whatever goes wrong on the way becomes an output; nothing leaves here as an exception.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct, field

from toolrest.errors import AuditError, Fatal, ToolCallError, os_words
from toolrest.gate.call.attempt import LEFT_BEHIND, timed_out
from toolrest.gate.call.report import emit_end, emit_refusal
from toolrest.gate.call.schedule import Place
from toolrest.gate.call.steps import take_steps
from toolrest.gate.call.understand import Route, with_repair_note
from toolrest.gate.context import Context
from toolrest.gate.output.limiter import Limited
from toolrest.gate.threads import Abandoned
from toolrest.gate.tool.tool import Tool
from toolrest.items import CallItem, ToolOutput

if TYPE_CHECKING:
    from toolrest.events import FileChange
    from toolrest.gate.call.deadlines import Deadline
    from toolrest.gate.call.turn import Turn
    from toolrest.gate.hooks.hooks import Hooked
    from toolrest.gate.session import Session
    from toolrest.gate.tool.call import ToolCall

_LARGE = 1 << 20
_log = logging.getLogger("toolrest.tools")
# Without a handler Python prints what is logged: into the chat, and among what `exec` says.
_log.addHandler(logging.NullHandler())


def _nowhere(output: ToolOutput) -> None:
    """Drop an output, for calls whose output is not awaited."""


class Walk(Struct):
    """One call on its way. Its fields are what later steps and the final event need."""

    session: Session
    item: CallItem
    turn: Turn
    call_id: str
    place: Place
    started: float = field(default_factory=monotonic)
    tool: Tool | None = None
    arguments: str = ""
    fingerprint: str = ""
    files: Sequence[FileChange] = ()
    ended: bool = False
    aborting: bool = False
    call: ToolCall | None = None
    """The call as it was last understood."""
    decided: bool = False
    looping: bool = False
    deadline: Deadline | None = None
    task: asyncio.Task[None] | None = None
    ctx: Context | None = None
    limited: Limited | None = None
    note: str = ""
    """A note for the model about its call's approval."""
    refused: Fatal | None = None
    """Set when the turn had already failed before this call came."""
    route: Route | None = None
    hooked: Hooked | None = None
    ran: ToolCall | None = None
    """Set when the tool itself was started."""
    deliver: Callable[[ToolOutput], None] = _nowhere
    """Takes the output: at the end, or before it for work that will not stop."""

    @property
    def name(self) -> str:
        """The tool's own name, or what the model called it."""
        return self.tool.name if self.tool is not None else self.item.name

    async def run(self) -> None:
        """Take the call through the gate and deliver its one output."""
        outer = _current.get()
        if outer is not None and outer.session is self.session:
            self.place.within = outer  # a running tool makes this call
        token = _current.set(self)
        try:
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
            self._log_traceback(error)
        finally:
            _current.reset(token)
        if self.session.hooks is not None:
            output = await self.session.hooks.after(self, output)
        self.deliver(self.end(output))

    def _log_traceback(self, error: BaseException) -> None:
        """Log an exception of a tool: the model reads a line of it, its author needs the place."""
        import traceback

        text = "".join(traceback.format_exception(error))
        _log.error("%s failed\n%s", self.name, self.session.redactor.redact(text).rstrip())

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
        output = ToolOutput.error(error.message)
        output.failure = error.failure
        return output

    def abort(self) -> None:
        """Mark the call as aborted, which ends its own deadline."""
        self.aborting = True
        if self.deadline is not None:
            self.deadline.stop()

    async def _finished(self, output: ToolOutput) -> ToolOutput:
        if self.note:
            output = replace(output, notes=[*output.notes, self.note])
        if len(output.text) > _LARGE and self.ctx is not None:
            # Redacting and cutting a large text would hold up the event loop.
            self.limited = await self.ctx.in_thread(self._limit, output)
        return output

    # The answer

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
        self.place.leave()
        try:
            if getattr(self.item, "repaired", ()):
                output = with_repair_note(self.item, output)
            limited = self.limited or self._limit(output)
        except Exception as error:
            limited = Limited(self.fatal(error), False, 0, None)
        if output.secrets:
            # The model has read them; redact them from every later event and file.
            self.session.redactor.learn(output.secrets)
        told = self._written(limited)
        try:
            emit_end(self, told)
        except AuditError as error:
            return self.fatal(error)
        return limited.output

    def _written(self, limited: Limited) -> Limited:
        """The output as it is told: an error where it could not be written down before."""
        if self.turn.on_output is not None:
            try:
                self.turn.on_output(self.item, limited.output)
            except Fatal as error:
                self.turn.fail(error)
                return Limited(ToolOutput.error(error.message, "fatal"), False, 0, None)
        return limited

    def _limit(self, output: ToolOutput) -> Limited:
        """Add a loop note, redact, cut and spill the output; in a thread when it is large."""
        tool = self.tool
        if tool is not None and self.fingerprint and not tool.polling and not self.looping:
            mutating = self.call is not None and self.call.mutating
            output = self.turn.loops.watch(output, self.fingerprint, mutating=mutating)
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
