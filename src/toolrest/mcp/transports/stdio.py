"""The stdio transport: a server as a child process, its streams as the SDK wants them.

The session's owner of process trees starts the command, which is already confined; nothing of it
outlives the connection. Streams are read line by line through the event loop, and only when a
message is asked for, so a server that floods us only fills its own pipe.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from msgspec.structs import replace

from toolrest.mcp.errors import McpUnavailable
from toolrest.mcp.transports.stderr import crash_reason
from toolrest.process.child import Child, StartFailed
from toolrest.process.output.streams import StreamReader
from toolrest.process.wakeup import uncancelled, wake

if TYPE_CHECKING:
    from toolrest.process.owner import Owner
    from toolrest.sandbox.confine import Confined


CHUNK = 65_536
LONGEST_LINE = 64 << 20
"""Bytes of the longest line; a longer one is a mistake or an attack."""


class Closed(Exception):
    """Raised when either side has closed the pipe."""


class _Descriptor:
    """One end of a pipe that the event loop watches while a task waits for it."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._close = weakref.finalize(self, os.close, fd)
        self._waiting: asyncio.Future[None] | None = None
        self.closed = False

    def _watch(self, waiting: asyncio.Future[None]) -> None:
        raise NotImplementedError

    def _unwatch(self) -> None:
        raise NotImplementedError

    async def _ready(self) -> None:
        waiting = self._waiting = self._loop.create_future()
        self._watch(waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if not self.closed:
                self._unwatch()

    def close(self) -> None:
        """Close it; a task that waits for it gets Closed."""
        if self.closed:
            return
        self.closed = True
        if not self._loop.is_closed():
            self._unwatch()
        self._close()
        if self._waiting is not None:
            wake(self._waiting)


class LineReader(_Descriptor):
    """Reads lines from a descriptor, when asked for."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._parts: list[bytes] = []
        self._held = 0
        self._lines: list[bytes] = []

    async def line(self) -> bytes:
        """The next line without its end; Closed at the end of the stream."""
        while not self._lines:
            if self.closed:
                raise Closed
            # A server that never pauses must not keep other tasks from running.
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
                await self._ready()
                if self.closed:
                    return b""
            except OSError:
                return b""

    def _watch(self, waiting: asyncio.Future[None]) -> None:
        self._loop.add_reader(self._fd, wake, waiting)

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._fd)


class LineWriter(_Descriptor):
    """Writes whole lines to a descriptor, one after the other, waiting while it is full."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._turn = asyncio.Lock()

    async def write(self, line: bytes) -> None:
        """Write a line; Closed when the reader is gone."""
        async with self._turn:
            rest = memoryview(line)
            while rest:
                if self.closed:
                    raise Closed
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except BlockingIOError:
                    await self._ready()
                except OSError:
                    self.close()

    def _watch(self, waiting: asyncio.Future[None]) -> None:
        self._loop.add_writer(self._fd, wake, waiting)

    def _unwatch(self) -> None:
        self._loop.remove_writer(self._fd)


LEAVES_BY_ITSELF = 1.0
"""Seconds that a server has to exit after its input ended."""
_KILL_GRACE = 0.2
_EXIT_NEWS = 0.5
_STDERR_KEPT = 65_536
MOST_JUNK = 100_000
"""Limit of lines that are no messages; past it the server is not read any more."""
_JUNK_KEPT = 3


class StdioWire:
    """Both streams of a running server, and the reason when they end."""

    is_modern = False
    offline = False

    def __init__(self, child: Child, stdin: int) -> None:
        self.child = child
        self.read = Incoming(LineReader(child.outputs[0]), self._note_junk)
        self.write = Outgoing(LineWriter(stdin))
        self.junk = 0
        self._junk: deque[str] = deque(maxlen=_JUNK_KEPT)
        self._stderr = b""
        self._errors = StreamReader(child.outputs[1], self._note_stderr)

    def _note_junk(self, line: bytes) -> None:
        self.junk += 1
        self._junk.append(line[:120].decode("utf-8", "replace"))

    def _note_stderr(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-_STDERR_KEPT:]

    @property
    def stderr(self) -> str:
        """The end of the server's standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def ending(self) -> str:
        """The reason that users see: how the process ended, and its last output."""
        ended = await self.child.wait(_EXIT_NEWS)
        if ended is None:
            how = "it closed its output"
        elif ended.signal is not None:
            how = f"it was ended by signal {ended.signal}"
        else:
            how = f"it exited with code {ended.exit_code}"
        return how + self.last_output()

    def last_output(self) -> str:
        """The error on standard error, or lines of standard output that were no messages."""
        if self._stderr:
            return f"; its stderr: {crash_reason(self.stderr)}"
        if self._junk:
            lines = "line" if self.junk == 1 else "lines"
            return f"; {self.junk} {lines} on its output were no messages: {self._junk[-1]!r}"
        return ""

    async def aclose(self) -> None:
        """End the input, wait a little, then end the whole tree."""
        self.write.close()
        try:
            if await self.child.wait(LEAVES_BY_ITSELF) is None or not self.child.gone:
                await self.child.kill(_KILL_GRACE)
        finally:
            self.read.close()
            self._errors.close()
            self.child.abandon()


class _End:
    """One end of the SDK's pair of streams: closing it never waits."""

    def close(self) -> None:
        """Close this end."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close this end, as the SDK calls it."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Incoming(_End):
    """Messages from the server: the SDK's reading end. Lines that are no messages are dropped.

    `ended` is set when nothing more will come.
    """

    def __init__(self, lines: LineReader, on_junk: Callable[[bytes], None]) -> None:
        self._lines = lines
        self._on_junk = on_junk
        self._parse = jsonrpc_message_adapter.validate_json
        self._message = SessionMessage
        self._junk = 0
        self.ended = asyncio.Event()
        self.on_end: Callable[[], None] = _nothing

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        while True:
            try:
                line = await self._lines.line()
            except Closed:
                self.close()
                raise StopAsyncIteration from None
            if not line.strip():
                continue
            try:
                return self._message(self._parse(line, by_name=False))
            except (ValueError, RecursionError):
                self._junk += 1
                self._on_junk(line)
                if self._junk > MOST_JUNK:
                    self._lines.close()

    def close(self) -> None:
        """Stop reading."""
        self._lines.close()
        self.ended.set()
        self.on_end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self.receive()


class Outgoing(_End):
    """Messages to the server: the SDK's writing end."""

    def __init__(self, lines: LineWriter) -> None:
        self._lines = lines

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message as a line."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await self._lines.write(text.encode() + b"\n")
        except Closed:
            raise anyio.BrokenResourceError from None

    def close(self) -> None:
        """Close the server's input."""
        self._lines.close()


@asynccontextmanager
async def stdio_wire(owner: Owner, confined: Confined) -> AsyncIterator[StdioWire]:
    """Start the program and talk to it; McpUnavailable when it cannot be started."""
    reading, writing = os.pipe()
    try:
        command = replace(confined.command, fds=(*confined.command.fds, (0, reading)))
        child = await owner.start(command)
    except StartFailed as failure:
        os.close(writing)
        confined.release()
        raise McpUnavailable(str(failure)) from None
    except BaseException:
        os.close(writing)
        confined.release()
        raise
    finally:
        os.close(reading)
    wire = StdioWire(child, writing)
    try:
        yield wire
    finally:
        try:
            # Cancelling the close would leave a process behind.
            await uncancelled(asyncio.ensure_future(wire.aclose()))
        finally:
            confined.release()


def _nothing() -> None:
    """Default of callbacks that are not set."""
