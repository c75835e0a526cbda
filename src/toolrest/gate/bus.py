"""One ordered stream of events per session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from time import time

from toolrest.errors import ToolrestError
from toolrest.events import Event

Listener = Callable[[Event], None]

_log = logging.getLogger("toolrest")


class Bus:
    """Numbers events and hands each to every listener, in order, before `emit` returns."""

    def __init__(self) -> None:
        self._sequence = 0
        self._listeners: list[Listener] = []

    def emit(self, event: Event) -> None:
        """Number the event and tell everyone.

        A listener that raises one of Toolrest's own errors (an audit log that cannot be written)
        stops the call that emitted; any other failure of a listener is logged and hurts nobody.
        """
        self._sequence += 1
        event.seq = self._sequence
        event.time = time()
        for listener in self._listeners:
            try:
                listener(event)
            except ToolrestError:
                raise
            except Exception:
                _log.exception("an event listener failed on %s", event.type)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns what stops it."""
        self._listeners = [*self._listeners, listener]

        def unsubscribe() -> None:
            self._listeners = [known for known in self._listeners if known is not listener]

        return unsubscribe

    async def stream(self) -> AsyncIterator[Event]:
        """Every event from now on, until the iterator is closed."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        unsubscribe = self.subscribe(queue.put_nowait)
        try:
            while True:
                yield await queue.get()
        finally:
            unsubscribe()
