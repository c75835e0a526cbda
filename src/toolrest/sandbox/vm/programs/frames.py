"""Frames: the language of host and machine, over one serial port or socket.

A frame is a length, a kind, the number of a stream and a payload. A stream is one command (the
host numbers these, from 1) or one connection to the network proxy (numbered by the machine, from
`CONNECTIONS` on). Bytes flow only on credit: a side sends at most `WINDOW` bytes of a stream
beyond those that the other has said it is done with, so a slow reader holds up no other stream,
and neither side has to keep more than that. The host breaks off with a machine that does otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

# host → machine
START = 1  # u8: whether errors go where output goes; the command as JSON, see `agent.Run`
INPUT = 2  # bytes for a command's standard input, or from the proxy
END = 3  # no more of these
SIGNAL = 4  # u8: for the command's processes
KILL = 5  # everything that the command ever started, at once
RESIZE = 6  # u16 rows, u16 columns

# machine → host
READY = 16  # JSON: seconds since the machine's start
OUT = 17
ERR = 18
EXIT = 19  # u8, the exit code: the last frame of a command
OPEN = 20  # a connection to the proxy; its bytes are OUT, its end is CLOSED
CLOSED = 21

# both ways
CREDIT = 32  # u32: so many bytes are done with

FROM_HOST = frozenset((START, INPUT, END, SIGNAL, KILL, RESIZE, CREDIT))
FROM_MACHINE = frozenset((READY, OUT, ERR, EXIT, OPEN, CLOSED, CREDIT))

CONNECTIONS = 1 << 31
MOST = 65_536
"""Longest payload, but for a command's START."""
LONGEST_START = 16 << 20
WINDOW = 262_144

_HEAD = struct.Struct("<IBI")
_NUMBER = struct.Struct("<I")
_SIZE = struct.Struct("<HH")
_LENGTHS = {
    SIGNAL: 1,
    EXIT: 1,
    RESIZE: _SIZE.size,
    CREDIT: _NUMBER.size,
    END: 0,
    KILL: 0,
    OPEN: 0,
    CLOSED: 0,
}
"""Payloads of these kinds have one length."""

Frame = tuple[int, int, bytes]
"""Kind, stream, payload."""


class BadFrame(ValueError):
    """Bytes that are no frame, or none that this side may send."""


def pack(kind: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame in bytes."""
    return _HEAD.pack(len(payload), kind, stream) + payload


def credit(stream: int, count: int) -> bytes:
    """The frame that says: so many bytes of this stream are done with."""
    return pack(CREDIT, stream, _NUMBER.pack(count))


def resize(stream: int, rows: int, cols: int) -> bytes:
    """The frame that gives a command's terminal another size."""
    return pack(RESIZE, stream, _SIZE.pack(min(rows, 65_535), min(cols, 65_535)))


def number(payload: bytes) -> int:
    """The number in a CREDIT."""
    return int(_NUMBER.unpack(payload)[0])


def size(payload: bytes) -> tuple[int, int]:
    """Rows and columns in a RESIZE."""
    rows, cols = _SIZE.unpack(payload)
    return rows, cols


class Reader:
    """Takes frames out of bytes that come in any pieces; holds less than one frame.

    `kinds` are those that the other side may send. A length or a kind that is not allowed raises
    BadFrame before anything of the frame is kept.
    """

    def __init__(self, kinds: frozenset[int]) -> None:
        self._kinds = kinds
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete."""
        self._rest += data
        start = 0
        try:
            while len(self._rest) - start >= _HEAD.size:
                length, kind, stream = _HEAD.unpack_from(self._rest, start)
                self._check(length, kind)
                end = start + _HEAD.size + length
                if len(self._rest) < end:
                    return
                payload = bytes(self._rest[start + _HEAD.size : end])
                start = end
                yield kind, stream, payload
        finally:
            del self._rest[:start]

    def _check(self, length: int, kind: int) -> None:
        if kind not in self._kinds:
            raise BadFrame(f"a frame of kind {kind} is not for this side")
        exact = _LENGTHS.get(kind)
        most = LONGEST_START if kind == START else MOST
        if length > most if exact is None else length != exact:
            raise BadFrame(f"a frame of kind {kind} is {length} bytes long")
