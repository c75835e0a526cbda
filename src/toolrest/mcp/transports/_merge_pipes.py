"""A server's standard streams, line by line, through the event loop: no threads, no queues.

Nothing is read before somebody asks for it, so a server that floods us only fills its own pipe.
"""

from __future__ import annotations

import asyncio
import os
import weakref

CHUNK = 65_536
LONGEST_LINE = 64 << 20
"""A message that is longer is a mistake or an attack."""


class Closed(Exception):
    """The other side is gone, or we closed."""


class LineReader:
    """Lines from a descriptor, when asked for."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._close = weakref.finalize(self, os.close, fd)
        self._parts: list[bytes] = []
        self._held = 0
        self._lines: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None
        self.closed = False

    async def line(self) -> bytes:
        """The next line without its end; Closed at the end of the stream."""
        while not self._lines:
            if self.closed:
                raise Closed
            # A server that never pauses must not keep everybody else from running.
            await asyncio.sleep(0)
            data = await self._chunk()
            if not data:
                self.close()
                raise Closed
            self._take(data)
        return self._lines.pop()

    def _take(self, data: bytes) -> None:
        head, *rest = data.split(b"\n")
        self._parts.append(head)
        self._held += len(head)
        if self._held > LONGEST_LINE:
            self.close()
            raise Closed
        if rest:
            whole = [b"".join(self._parts), *rest[:-1]]
            self._parts, self._held = [rest[-1]], len(rest[-1])
            self._lines = whole[::-1]

    async def _chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, CHUNK)
            except BlockingIOError:
                await self._readable()
                if self.closed:
                    return b""
            except OSError:
                return b""

    async def _readable(self) -> None:
        waiting = self._waiting = self._loop.create_future()
        self._loop.add_reader(self._fd, _wake, waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if not self.closed:
                self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Stop reading; whoever waits for a line is told."""
        if self.closed:
            return
        self.closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._close()
        if self._waiting is not None:
            _wake(self._waiting)


class LineWriter:
    """Writes whole lines to a descriptor, one after the other, waiting while it is full."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._close = weakref.finalize(self, os.close, fd)
        self._turn = asyncio.Lock()
        self._waiting: asyncio.Future[None] | None = None
        self.closed = False

    async def write(self, line: bytes) -> None:
        """Write a line; Closed when nobody reads it any more."""
        async with self._turn:
            rest = memoryview(line)
            while rest:
                if self.closed:
                    raise Closed
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    self.close()

    async def _writable(self) -> None:
        waiting = self._waiting = self._loop.create_future()
        self._loop.add_writer(self._fd, _wake, waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if not self.closed:
                self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """The server reads the end of its input."""
        if self.closed:
            return
        self.closed = True
        if not self._loop.is_closed():
            self._loop.remove_writer(self._fd)
        self._close()
        if self._waiting is not None:
            _wake(self._waiting)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
