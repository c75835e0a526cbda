"""A fixed address in front of model servers that come and go; it can cut what flows through it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Door:
    """Passes connections on to `target`. `cut_after` bytes of an answer, one is cut off."""

    def __init__(self) -> None:
        self.target = ""
        self.cut_after: int | None = None
        self.cuts = 0
        self.address = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for writer in self._open:  # a task that never began has not closed its own
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        task = asyncio.ensure_future(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = urlsplit(self.target)
        try:
            there, back = await asyncio.open_connection(place.hostname, place.port)
        except OSError:
            writer.transport.abort()
            self._open.discard(writer)
            return
        both = {
            asyncio.ensure_future(_pump(reader, back)),
            asyncio.ensure_future(self._answer(there, writer)),
        }
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # First of all: the wait below may be cancelled, by the end of the test.
            back.transport.abort()
            writer.transport.abort()
            self._open.discard(writer)
            for task in both:
                task.cancel()
            await asyncio.wait(both)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(4096):
                if self.cut_after is not None:
                    data, rest = data[: self.cut_after], self.cut_after - len(data)
                    self.cut_after = rest if rest > 0 else None
                    if rest <= 0:
                        self.cuts += 1
                        writer.write(data)
                        await writer.drain()
                        return
                writer.write(data)
                await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
