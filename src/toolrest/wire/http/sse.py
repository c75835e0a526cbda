"""Server-sent events: a stream of bytes into the data of each event."""

from __future__ import annotations

from typing import Final

_BOM: Final = b"\xef\xbb\xbf"


class Events:
    """The parser of a stream in any pieces. Only `data` counts: its JSON has the event's type."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._is_first = True
        self._after_return = False
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that these bytes complete."""
        chunk = self._with_newlines(chunk)
        self._line += chunk
        if b"\n" not in chunk:
            return []
        *lines, rest = bytes(self._line).split(b"\n")
        self._line = bytearray(rest)
        done: list[bytes] = []
        for line in lines:
            self._take(line, done)
        return done

    def _with_newlines(self, chunk: bytes) -> bytes:
        """The bytes with each end of a line, which may be CR, LF or both, as one LF."""
        if self._after_return and chunk:  # that line has ended already
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _take(self, line: bytes, done: list[bytes]) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                done.append(b"\n".join(self._data))
                self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])

    def flush(self) -> list[bytes]:
        """The last event when the stream ends; some servers leave out the last empty line."""
        done: list[bytes] = []
        self._take(bytes(self._line), done)
        self._take(b"", done)
        self._line = bytearray()
        return done
