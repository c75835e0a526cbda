"""Shared parts of the proxy's protocols: dialling, refusals, and bytes carried both ways."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, TypeAlias

from msgspec import Struct

Protocol: TypeAlias = Literal["http", "connect", "socks5"]
Reason: TypeAlias = Literal["not_allowed", "not_allowed_local", "invalid_host"]
Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial: TypeAlias = Callable[[str, int, Protocol], Awaitable[Stream]]

_CHUNK = 1 << 16


class Blocked(Struct, frozen=True):
    """A connection that was turned away: to where, how, and why."""

    host: str
    port: int
    protocol: Protocol
    reason: Reason


class Refusal(Exception):
    """Raised when a connection is refused (see `blocked`) or cannot be made."""

    def __init__(self, message: str, blocked: Blocked | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.blocked = blocked


async def carry(client: Stream, server: Stream) -> None:
    """Bytes both ways until both sides have finished."""
    async with closing(server):
        await asyncio.gather(pump(client[0], server[1]), pump(server[0], client[1]))


@contextlib.asynccontextmanager
async def closing(server: Stream) -> AsyncIterator[None]:
    """Close the connection at the end, however that comes."""
    try:
        yield
    finally:
        server[1].close()
        with contextlib.suppress(OSError):
            await server[1].wait_closed()


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Bytes one way until the source ends."""
    try:
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except OSError:
        sink.close()
