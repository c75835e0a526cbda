"""Streams of a machine, on the host's side: a command's client, or a connection to the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Protocol

from toolrest.sandbox.vm.programs import frames

_LONGEST_PATH = 100
_MOST_UNREAD = 16 * frames.WINDOW
"""Frames of a stream, heads and credit included, that its reader has not taken yet."""
Send = Callable[[bytes], None]


class Stream(Protocol):
    """The receiver of the machine's frames of one number."""

    def take(self, kind: int, payload: bytes) -> None:
        """One frame from the machine; raises BadFrame where it breaks the rules."""
        ...

    def close(self) -> None:
        """Let go: the machine has ended."""
        ...


class Owed:
    """Bytes of one stream that the machine has sent and the reader has not taken yet."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, count: int) -> None:
        """So much came; raises BadFrame when that is more than it may be ahead."""
        self._bytes += count
        if self._bytes > frames.WINDOW:
            raise BadStream("it sent more than it had credit for")

    def settle(self, count: int) -> None:
        """So much is done with."""
        self._bytes -= count


class BadStream(frames.BadFrame):
    """A machine that does not keep to its credit."""


class ClientStream:
    """Bytes between one command's client and the machine."""

    def __init__(
        self, number: int, send: Send, writer: asyncio.StreamWriter, over: threading.Event
    ) -> None:
        self.number = number
        self._over = over
        self._send = send
        self._writer: asyncio.StreamWriter | None = writer
        self._owed = Owed()
        self._started = False
        self._exited = asyncio.Event()

    def take(self, kind: int, payload: bytes) -> None:
        """Output, credit for input, or the exit code."""
        if kind in (frames.OUT, frames.ERR):
            self._owed.add(len(payload))
            if self._writer is None:  # the client is gone; what is left of the command drains
                self._owed.settle(len(payload))
                self._send(frames.credit(self.number, len(payload)))
        if self._writer is not None:
            self._writer.write(frames.pack(kind, self.number, payload))
            if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
                raise BadStream("it sent frames without end")
        if kind == frames.EXIT:  # the client closes: what it has not read would be lost else
            self._exit()

    def give(self, kind: int, payload: bytes) -> None:
        """One frame of the client, for the machine."""
        if kind == frames.CREDIT:
            self._owed.settle(frames.number(payload))
        self._started = self._started or kind == frames.START
        self._send(frames.pack(kind, self.number, payload))

    async def end(self) -> None:
        """The client is gone: so is its command, once this returns."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._started and not self._exited.is_set():
            self._send(frames.pack(frames.KILL, self.number))
            await self._exited.wait()
        self._over.set()

    def _exit(self) -> None:
        self._exited.set()
        self._over.set()

    def close(self) -> None:
        """The machine has ended: a client that does not read must not keep its end open."""
        self._exit()
        if self._writer is not None:
            self._writer.transport.abort()


class ProxyTunnel:
    """Bytes between a command's connection in the machine and the network proxy."""

    def __init__(self, number: int, send: Send) -> None:
        self.number = number
        self._send = send
        self._owed = Owed()
        self._credit = frames.WINDOW
        self._more = asyncio.Event()
        self._pending = bytearray()
        self._closed = False
        self._news = asyncio.Event()

    def take(self, kind: int, payload: bytes) -> None:
        """Bytes for the proxy, credit for its answer, or the end."""
        if kind == frames.OUT:
            self._owed.add(len(payload))
            self._pending += payload
            self._news.set()
        elif kind == frames.CREDIT:
            self._credit = min(self._credit + frames.number(payload), frames.WINDOW)
            self._more.set()
        elif kind == frames.CLOSED:
            self.close()

    def close(self) -> None:
        """Nothing more comes from the machine."""
        self._closed = True
        self._news.set()

    async def run(self, proxy: str) -> None:
        """Carry bytes until the proxy has closed its side."""
        try:
            reader, writer = await _connect(proxy)
        except OSError:
            self._send(frames.pack(frames.END, self.number))
            return
        sending = asyncio.create_task(self._forward(writer))
        try:
            while data := await reader.read(min(self._credit, frames.MOST)):
                self._credit -= len(data)
                self._send(frames.pack(frames.INPUT, self.number, data))
                while self._credit <= 0:
                    self._more.clear()
                    await self._more.wait()
        except OSError:
            pass  # the proxy broke off, which is the end as well
        finally:
            sending.cancel()
            writer.close()
            self._send(frames.pack(frames.END, self.number))

    async def _forward(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while self._pending or not self._closed:
                self._news.clear()
                data = bytes(self._pending)
                if not data:
                    await self._news.wait()
                    continue
                self._pending.clear()
                writer.write(data)
                await writer.drain()
                self._owed.settle(len(data))
                self._send(frames.credit(self.number, len(data)))
            writer.write_eof()


async def _connect(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect through the folder's descriptor where the path is too long for a socket's."""
    if len(os.fsencode(path)) < _LONGEST_PATH:
        return await asyncio.open_unix_connection(path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{name}")
    finally:
        os.close(folder)
