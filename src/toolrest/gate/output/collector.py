"""The collector of an output that is still being produced, of any size, in bounded memory.

What a `Collector` shows is exactly what `truncate` would make of the redacted whole; the whole
itself goes to a spill file as soon as it is known not to fit.
"""

from __future__ import annotations

import codecs
import io

from msgspec import Struct

from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.spill import Spill, SpillFile
from toolrest.gate.output.truncate import (
    Limit,
    byte_length,
    fits,
    keep_head,
    keep_tail,
    marker,
)
from toolrest.items import JSONObject
from toolrest.process.output.terminal_text import PlainText

_SLACK = 1 << 16
_MAX_PIECES = 1024
NOT_KEPT = "there is no spill folder"


class CollectedOutput(Struct, frozen=True):
    """A collected output. Totals count the whole text as UTF-8, after decoding and redaction.

    `spill_path` holds the whole text, or its first `spill_bytes` bytes when `spill_problem` is
    set: the reason why the rest is missing.
    """

    text: str
    total_bytes: int
    total_lines: int
    truncated: bool
    spill_path: str | None = None
    shown_bytes: int = 0
    spill_bytes: int = 0
    spill_problem: str | None = None

    def summary(self) -> JSONObject:
        """The totals for the limiter's notice; they go under `collected` in the metadata."""
        return {
            "total_bytes": self.total_bytes,
            "total_lines": self.total_lines,
            "shown_bytes": self.shown_bytes,
            "truncated": self.truncated,
            "spill_path": self.spill_path,
            "spill_bytes": self.spill_bytes,
            "spill_problem": self.spill_problem,
        }


class Collector:
    """Takes an output in pieces and keeps its head, its tail and its exact totals.

    Use it as a context manager, or call `finish`; either closes the spill file. With `plain`
    the output is a terminal's: colours and progress bars go before anything is counted.
    """

    def __init__(
        self,
        limit: Limit,
        *,
        redactor: Redactor | None = None,
        spill: Spill | None = None,
        hint: str = "output",
        plain: bool = False,
    ) -> None:
        self._limit = limit
        self._left = limit.budget // 2
        self._right = limit.budget - self._left
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._plain = PlainText() if plain else None
        self._stream = redactor.stream() if redactor is not None and redactor.active else None
        self._spill = spill
        self._hint = hint
        self._file: SpillFile | None = None
        self._held: io.StringIO | None = io.StringIO(newline="")
        self._head = ""
        self._tail: list[str] = []
        self._tail_chars = 0
        self._bytes = self._chars = self._newlines = 0
        self._last = ""
        self._result: CollectedOutput | None = None

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def write(self, chunk: str | bytes) -> str:
        """Take a piece; return the redacted text that became certain (for a live preview).

        A byte sequence or a secret that a piece leaves unfinished waits for the next one. Pieces
        after `finish` are dropped.
        """
        if self._result is not None:
            return ""
        if isinstance(chunk, str):
            pending = self._decoder.decode(b"", final=True)
            chunk = pending + chunk if pending else chunk
        else:
            chunk = self._decoder.decode(chunk)
        if self._plain is not None:
            chunk = self._plain.feed(chunk)
        if self._stream is not None:
            chunk = self._stream.feed(chunk)
        if chunk:
            self._add(chunk)
        return chunk

    def finish(self) -> CollectedOutput:
        """The collected output; a second call returns the same."""
        if self._result is None:
            rest = self._decoder.decode(b"", final=True)
            if self._plain is not None:
                rest = self._plain.feed(rest) + self._plain.flush()
            if self._stream is not None:
                rest = self._stream.feed(rest) + self._stream.flush()
            if rest:
                self._add(rest)
            if self._file is not None:
                self._file.close()
            self._result = self._cut() if self._held is None else self._whole(self._held)
        return self._result

    def so_far(self) -> CollectedOutput:
        """What was collected until now; more may come, and the spill file goes on."""
        if self._result is not None:
            return self._result
        if self._file is not None:
            self._file.flush()
        return self._cut() if self._held is None else self._whole(self._held)

    def fits(self, text: str) -> bool:
        """Whether a part of the output is within the limit by itself."""
        return fits(text, self._limit)

    def _add(self, text: str) -> None:
        self._bytes += byte_length(text)
        self._chars += len(text)
        self._newlines += text.count("\n")
        self._last = text[-1]
        if self._held is None:
            self._extend(text)
            return
        self._held.write(text)
        size = self._chars if self._limit.unit == "chars" else self._bytes
        if size > self._limit.budget:
            whole = self._held.getvalue()
            self._held = None
            self._head = whole[: self._left]
            if self._spill is not None:
                self._file = self._spill.open(self._hint)
            self._extend(whole)

    def _extend(self, text: str) -> None:
        if self._file is not None:
            self._file.write(text)
        # A character is at least one byte, so this many of them always hold the tail.
        piece = text[-self._right :] if self._right else ""
        self._tail.append(piece)
        self._tail_chars += len(piece)
        if self._tail_chars > 2 * self._right + _SLACK or len(self._tail) > _MAX_PIECES:
            kept = "".join(self._tail)[-self._right :] if self._right else ""
            self._tail, self._tail_chars = [kept], len(kept)

    def _whole(self, held: io.StringIO) -> CollectedOutput:
        return CollectedOutput(
            text=held.getvalue(),
            total_bytes=self._bytes,
            total_lines=self._lines,
            truncated=False,
            shown_bytes=self._bytes,
        )

    def _cut(self) -> CollectedOutput:
        head = keep_head(self._head, self._left, self._limit.unit)
        tail = keep_tail("".join(self._tail), self._right, self._limit.unit)
        omitted = self._chars - len(head) - len(tail)
        file = self._file
        return CollectedOutput(
            text=head + marker(self._limit, self._bytes, omitted) + tail,
            total_bytes=self._bytes,
            total_lines=self._lines,
            truncated=True,
            spill_path=file.path if file else None,
            shown_bytes=byte_length(head) + byte_length(tail),
            spill_bytes=file.size if file else 0,
            spill_problem=file.problem if file else NOT_KEPT,
        )

    @property
    def _lines(self) -> int:
        return self._newlines + (1 if self._last not in ("", "\n") else 0)
