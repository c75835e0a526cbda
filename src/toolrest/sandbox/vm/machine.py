"""A running machine: its process, and the way of each command's bytes to it.

It lives in a thread with an event loop of its own, so that a session's calls may come from any
loop. What comes from the machine is not trusted: frames are bounded, each stream may be at most
`WINDOW` bytes ahead of its reader, and a machine that does otherwise is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from toolrest.process.child import Child, StartFailed
from toolrest.process.command import Command
from toolrest.process.helper_request import close_all
from toolrest.process.owner import Owner
from toolrest.sandbox.vm.programs import frames
from toolrest.sandbox.vm.streams import ClientStream, ProxyTunnel, Stream

_MOST_STREAMS = 256
_MOST_UNSENT = 2 * _MOST_STREAMS * frames.WINDOW
"""Bytes for a machine that it has not read yet: more than the credit of all its streams."""
_CONSOLE = 4096
_LOOK = 0.05
_STOP_PATIENCE = 15.0
_log = logging.getLogger("toolrest")


class MachineFailed(Exception):
    """A machine that did not come up; the text says what it said last."""


class MachineGivenUp(MachineFailed):
    """A boot that was not waited for, since the session was closed; says nothing of the machine."""


class Machine:
    """One machine, from its boot to its end.

    `channel` is our end of the socket that is its serial port. `handed` are descriptors of the
    command's that are closed here once it has them. `proxy` is the path of the network proxy's
    socket, or None.
    """

    def __init__(
        self,
        command: Command,
        channel: socket.socket,
        handed: Sequence[int],
        *,
        registry: str,
        proxy: str | None,
    ) -> None:
        self.uptime = 0.0
        """Seconds that its own clock counted when it was ready."""
        self._command = command
        self._channel = channel
        self._handed = handed
        self._registry = registry
        self._proxy = proxy
        self._settled = threading.Event()
        self._failure = ""
        self._console = bytearray()
        self._streams: dict[int, Stream] = {}
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._thread = threading.Thread(target=self._run, name="toolrest-machine", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return bool(self._failure)

    def start(self, seconds: float, given_up: threading.Event) -> None:
        """Boot; returns when commands can be run, raises MachineFailed when it takes longer.

        Once `given_up` is set it raises MachineGivenUp instead.
        """
        self._thread.start()
        until = time.monotonic() + seconds
        while not (answered := self._settled.wait(_LOOK)):
            if given_up.is_set() or time.monotonic() > until:
                break
        if answered and not self._failure:
            return
        reason = self._failure if answered else f"it did not answer in {seconds:.0f} s"
        self.stop()
        if given_up.is_set():
            raise MachineGivenUp("the session was closed while it booted")
        said = bytes(self._console).decode("utf-8", "replace").strip().splitlines()
        raise MachineFailed("; ".join((reason, *said[-3:])))

    def attach(self, client: socket.socket) -> threading.Event:
        """Serve the client of one command; the event is set when nothing of it runs any more."""
        over = threading.Event()
        loop = self._loop
        if loop is None or self._failure:
            client.close()
            over.set()
            return over
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(self._begin, self._serve(client, over))
            return over
        client.close()
        over.set()
        return over

    def stop(self) -> None:
        """End it, and return when it is gone."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stopping.set)
        if self._thread.is_alive():
            self._thread.join(_STOP_PATIENCE)

    # In the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except (OSError, StartFailed, frames.BadFrame) as error:
            self._failure = self._failure or str(error)
        finally:
            self._failure = self._failure or "it ended"
            self._settled.set()
            if self._stopping is None or not self._stopping.is_set():
                said = bytes(self._console).decode("utf-8", "replace").strip().splitlines()
                _log.warning("the virtual machine: %s", "; ".join((self._failure, *said[-3:])))

    async def _main(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        owner = Owner(cgroup=False, records=self._registry)
        try:
            try:
                child = await owner.start(self._command, merge=True)
            finally:
                close_all(self._handed)
            await self._live(child, self._stopping)
        finally:
            self._failure = self._failure or "it ended"
            for stream in self._streams.values():
                stream.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await owner.aclose()

    async def _live(self, child: Child, stopping: asyncio.Event) -> None:
        """Until it ends, is to end, or breaks the rules."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel)
        self._begin(self._read_console(child.outputs[0]))
        ends = [
            asyncio.ensure_future(end)
            for end in (self._receive(reader), stopping.wait(), child.wait())
        ]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if ends[0] in done and (error := ends[0].exception()) is not None:
                self._failure = f"it broke the protocol: {error}"
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            self._writer.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_console(self, fd: int) -> None:
        """Keep the last of what the kernel and QEMU say."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(fd, "rb", buffering=0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        while data := await reader.read(_CONSOLE):
            self._console += data
            del self._console[:-_CONSOLE]

    def _send(self, data: bytes) -> None:
        """Bytes for the machine, which is ended when it asks for answers and does not read them."""
        if self._writer is None:
            return
        self._writer.write(data)
        unsent = self._writer.transport.get_write_buffer_size()
        if unsent > _MOST_UNSENT and self._stopping is not None:
            self._failure = self._failure or "it broke the protocol: it does not read"
            self._stopping.set()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        incoming = frames.Reader(frames.FROM_MACHINE)
        while data := await reader.read(frames.MOST):
            for kind, number, payload in incoming.feed(data):
                self._act(kind, number, payload)

    def _act(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.READY:
            self.uptime = _uptime(payload)
            self._settled.set()
        elif kind == frames.OPEN:
            self._open(number)
        elif (stream := self._streams.get(number)) is not None:
            stream.take(kind, payload)

    def _open(self, number: int) -> None:
        taken = number in self._streams or len(self._streams) >= _MOST_STREAMS
        if number < frames.CONNECTIONS or taken or self._proxy is None:
            self._send(frames.pack(frames.END, number))
            return
        connection = ProxyTunnel(number, self._send)
        self._streams[number] = connection
        self._begin(self._carry(connection, self._proxy))

    async def _carry(self, connection: ProxyTunnel, proxy: str) -> None:
        try:
            await connection.run(proxy)
        finally:
            del self._streams[connection.number]

    async def _serve(self, client: socket.socket, over: threading.Event) -> None:
        client.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=client)
        self._count += 1
        stream = ClientStream(self._count, self._send, writer, over)
        self._streams[stream.number] = stream
        incoming = frames.Reader(frames.FROM_HOST)
        try:
            while data := await reader.read(frames.MOST):
                for kind, _, payload in incoming.feed(data):
                    stream.give(kind, payload)
                if self._writer is not None:
                    await self._writer.drain()
        except (ConnectionError, frames.BadFrame):
            stream.close()
        finally:
            try:
                await stream.end()
            finally:
                del self._streams[stream.number]
                over.set()


def _uptime(payload: bytes) -> float:
    try:
        return msgspec.json.decode(payload, type=dict[str, float]).get("uptime", 0.0)
    except msgspec.DecodeError:
        return 0.0
