"""The event bus: one ordered, redacted stream of a session's events, from any thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from threading import get_ident
from time import time
from typing import TYPE_CHECKING, Any

from toolrest.errors import ToolrestError
from toolrest.events import Event, FileChange

if TYPE_CHECKING:
    from toolrest.gate.output.redact import Redactor

Listener = Callable[[Event], None]

_log = logging.getLogger("toolrest")
_END = object()


class Bus:
    """Numbers events and hands each to every listener, in order, before `emit` returns.

    What another thread emits enters the stream on the event loop, in that thread's order.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._sequence = 0
        self._listeners: list[Listener] = []
        self._streams: list[EventStream] = []
        self._redactor = redactor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def bind(self) -> None:
        """Make this thread's running loop the one that events are emitted on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._thread = loop, get_ident()

    def emit(self, event: Event) -> None:
        """Number the event and hand it to every listener.

        A listener that raises one of Toolrest's own errors (an audit log that cannot be written)
        stops the call that emitted, after all listeners have the event; any other failure of a
        listener is only logged.
        """
        if self._loop is not None and get_ident() != self._thread:
            self._redact(event)  # here, for the loop would stand still over a long one
            self._loop.call_soon_threadsafe(self._publish_quietly, event)
            return
        if self._listeners:
            self._redact(event)
        self._publish(event)

    def _redact(self, event: Event) -> None:
        if self._redactor is not None and self._redactor.active:
            _scrub(event, self._redactor)

    def _publish(self, event: Event) -> None:
        self._sequence += 1
        if not self._listeners:
            return
        event.seq = self._sequence
        event.time = time()
        problem: ToolrestError | None = None
        for listener in self._listeners:
            try:
                listener(event)
            except ToolrestError as error:
                problem = problem or error
            except (Exception, asyncio.CancelledError):
                _log.exception("an event listener failed on %s", event.type)
        if problem is not None:
            raise problem

    def _publish_quietly(self, event: Event) -> None:
        try:
            self._publish(event)
        except ToolrestError:
            _log.exception("an event listener failed on %s", event.type)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns a function that unsubscribes."""
        self._listeners = [*self._listeners, listener]

        def unsubscribe() -> None:
            self._listeners = [known for known in self._listeners if known is not listener]

        return unsubscribe

    def stream(self) -> EventStream:
        """Every event from now on, until the session is closed or the stream is."""
        stream = EventStream(self)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        """End every stream after the events it already has."""
        for stream in self._streams:
            stream._queue.put_nowait(_END)
        self._streams.clear()


class EventStream(AsyncIterator[Event]):
    """Events as an async iterator. It holds all events since it was made."""

    def __init__(self, bus: Bus) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._unsubscribe = bus.subscribe(self._queue.put_nowait)

    async def __anext__(self) -> Event:
        event = await self._queue.get()
        if event is _END:
            self._queue.put_nowait(_END)
            self._unsubscribe()
            raise StopAsyncIteration
        found: Event = event
        return found

    def end(self) -> None:
        """Stop listening; the events so far can still be read."""
        self._unsubscribe()
        self._queue.put_nowait(_END)

    async def aclose(self) -> None:
        """Stop listening."""
        self.end()


def _scrub(event: Event, redactor: Redactor) -> None:
    """Redact every text of an event but those that the gate has redacted already."""
    for name in event.suspect or event.__struct_fields__:
        value = getattr(event, name)
        if not value:
            continue
        if type(value) is str:
            if len(value) >= redactor.shortest:
                setattr(event, name, redactor.redact(value))
        elif type(value) in (tuple, list, dict):
            setattr(event, name, _scrubbed(value, redactor))


def _scrubbed(value: Any, redactor: Redactor) -> Any:
    if type(value) is dict:
        return redactor.redact_json(value)
    parts = [
        FileChange(redactor.redact(item.path), item.before, item.after)
        if isinstance(item, FileChange)
        else redactor.redact_json(item)
        for item in value
    ]
    return tuple(parts) if type(value) is tuple else parts
