"""The reply of a server: its parser, and its body as a stream of events or one JSON document."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from toolrest.items import JSONObject
from toolrest.wire.http.endpoint import Opened
from toolrest.wire.http.sse import Events
from toolrest.wire.model import Completed, ModelError, ModelEvent

_LONGEST: Final = 64 << 20
"""Bytes of a reply, streamed or not."""
_SHOWN: Final = 200
_NO_EVENTS: Final = frozenset({b"", b"[DONE]", b"DONE"})


class Parser(ABC):
    """The parser of a server's reply into events. `completed` is set when the reply is complete."""

    completed: Completed | None = None
    is_ending: bool = False
    """Whether the server has said how the reply ends: `end` may be called even if it is cut now."""

    _lost: bytes | None = None

    def feed(self, data: bytes) -> Iterator[ModelEvent]:
        """The events of one server-sent event.

        An unreadable one breaks the stream: what it held, a "not" or half of a path, is missing.
        After the server has said how the reply ends it does so only if more comes all the same.
        """
        if data.strip() in _NO_EVENTS:
            return iter(())
        value = _object(data)
        if value is not None:
            return self.take(value)
        if not self.is_ending:
            raise _unreadable(data)
        self._lost = data
        return iter(())

    def goes_on(self) -> None:
        """Note that there is more text or more of a call; ModelError if some of it was lost."""
        if self._lost is not None:
            raise _unreadable(self._lost)

    @abstractmethod
    def take(self, event: JSONObject) -> Iterator[ModelEvent]:
        """The events of one decoded server-sent event."""

    @abstractmethod
    def end(self) -> Iterator[ModelEvent]:
        """The last events when the stream ends before `completed` was set, or an error."""

    @abstractmethod
    def whole(self, document: JSONObject) -> Iterator[ModelEvent]:
        """The events of a reply that came as one document, from a server that cannot stream."""


class Body:
    """The body of a reply, in any pieces; its first byte that is not blank shows what it is."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._stream = Events()
        self._opened: Opened | None = None
        self._document: bytearray | None = None
        self._size = 0

    def open(self, opened: Opened) -> None:
        """Take the headers."""
        self._opened = opened

    def feed(self, part: bytes) -> Iterator[ModelEvent]:
        """The events that this piece completes; of a document there are none before its end."""
        self._size += len(part)
        if self._size > _LONGEST:
            message = f"the server's answer is longer than {_LONGEST >> 20} MiB"
            raise ModelError("stream", message, retryable=False)
        if self._opened is not None and (part := part.lstrip()):
            self._document = None if self._opened.is_events(part) else bytearray()
            self._opened = None
        if self._document is not None:
            self._document += part
            return
        for data in self._stream.feed(part):
            yield from self._parser.feed(data)
            if self._parser.completed is not None:
                return

    def end(self) -> Iterator[ModelEvent]:
        """The last events up to `Completed`, when nothing more comes; ModelError without it."""
        parser = self._parser
        if self._document is not None:
            yield from self._end_of_document(self._document)
        else:
            for data in self._stream.flush():
                yield from parser.feed(data)
            if parser.completed is None:
                yield from parser.end()
        if parser.completed is None:
            raise ModelError("stream", "stream closed before response.completed")
        yield parser.completed

    def _end_of_document(self, document: bytearray) -> Iterator[ModelEvent]:
        """The events of one object, or of the events that a server sent as lines of JSON."""
        value = _object(document)
        if value is not None:
            yield from self._parser.whole(value)
            return
        rows = [bytes(line) for line in document.splitlines() if line.strip()]
        if len(rows) < 2 or _object(rows[0]) is None:
            raise ModelError("stream", "cannot read the JSON that the server answered with")
        for row in rows:
            if self._parser.completed is None:
                yield from self._parser.feed(row)
        if self._parser.completed is None:
            yield from self._parser.end()


def _unreadable(data: bytes) -> ModelError:
    event = data.decode("utf-8", "replace")[:_SHOWN]
    return ModelError("stream", f"cannot read an event of the server's answer: {event}")


def _object(data: bytes | bytearray) -> JSONObject | None:
    """The JSON object in some bytes, None if it is none; a wrong byte costs its character only."""
    try:
        value = json.loads(data.decode("utf-8", "replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
