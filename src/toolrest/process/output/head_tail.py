"""Output in bounded memory: head, tail, and the number of bytes omitted between them."""

from __future__ import annotations

from msgspec import Struct

LIMIT = 1 << 20


class Piece(Struct, frozen=True):
    """A stretch of output as it was kept; `omitted` bytes are missing between head and tail."""

    head: bytes = b""
    tail: bytes = b""
    omitted: int = 0

    @property
    def kept(self) -> int:
        """Number of bytes kept."""
        return len(self.head) + len(self.tail)

    @property
    def total(self) -> int:
        """Number of bytes, the omitted ones included."""
        return self.kept + self.omitted

    def shrunk(self, limit: int) -> Piece:
        """The same output within a smaller limit, cut in the middle."""
        if self.kept <= limit:
            return self
        whole = self.head + self.tail
        # Where something is missing already, the gap stays where it is: inside [first, last).
        least = len(self.head) if self.omitted else len(whole)
        first = min(limit // 2, least)
        last = min(limit - first, len(whole) - (least if self.omitted else first))
        first = min(limit - last, least)
        return Piece(whole[:first], whole[len(whole) - last :], self.total - first - last)


class HeadTail:
    """Collects output up to a limit: half of it for the beginning, half for the latest."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.head_limit = limit // 2
        self.tail_limit = limit - self.head_limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    @property
    def omitted(self) -> int:
        """Bytes that were dropped from the middle."""
        return self.total - len(self._head) - len(self._tail)

    def add(self, data: bytes) -> None:
        """Append output, dropping the oldest of the tail when it is full."""
        self.total += len(data)
        room = self.head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self.tail_limit:
            self._tail[:] = data[len(data) - self.tail_limit :]
        elif data:
            self._tail += data
            excess = len(self._tail) - self.tail_limit
            if excess > 0:
                del self._tail[:excess]

    def piece(self) -> Piece:
        """The output kept so far."""
        return Piece(bytes(self._head), bytes(self._tail), self.omitted)

    def drain(self) -> Piece:
        """Take everything out; the next output starts a new head."""
        piece = self.piece()
        self.total = 0
        self._head.clear()
        self._tail.clear()
        return piece
