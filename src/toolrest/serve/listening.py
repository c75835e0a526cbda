"""Listening sockets and the web server behind them, for MCP over HTTP and the browser page."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolrest.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_MOST_CONNECTIONS = 512
_PATIENCE = 15.0
"""Seconds between two looks at a connection."""


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether an address means every address of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def names_of(host: str) -> list[str]:
    """How a client may call the host that a server listens on; first as it was given."""
    own = f"[{host}]" if ":" in host else host
    loopback = ("127.0.0.1", "localhost", "[::1]") if is_loopback(host) else ()
    return list(dict.fromkeys((own, *loopback)))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends without delay only where the protocol is named, else each reply waits 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return sock


class TimedConnection(H11Protocol):
    """An HTTP connection that ends when a request does not come whole within two looks at it.

    Whoever is on this machine can connect, users without a login too: what they leave open must
    not use up memory and descriptors.
    """

    _seen: Any = False
    """The request that was not whole at the last look; None before the first one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; one connection too many is closed at once."""
        super().connection_made(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            transport.abort()
        self._next_look = self.loop.call_later(_PATIENCE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        is_whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        if not is_whole and self._seen is self.cycle:
            self.transport.abort()
            return
        self._seen = False if is_whole else self.cycle
        self._next_look = self.loop.call_later(_PATIENCE, self._look)


class QuietServer(uvicorn.Server):
    """A server that looks once a second whether it is to end, or when it is asked to.

    Uvicorn looks ten times a second, which is most of what a server without requests costs.
    """

    _wake: Callable[[], object] = staticmethod(lambda: None)

    async def main_loop(self) -> None:
        """Wait until the server is asked to stop; the date in its answers follows."""
        asked, loop = asyncio.Event(), asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(asked.set)
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), 1.0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal."""
        super().handle_exit(sig, frame)
        self._wake()


async def serve(
    app: ASGIApp, sock: socket.socket, cert: str | None = None, key: str | None = None
) -> None:
    """Serve until the process is asked to stop; with a certificate and its key, over HTTPS."""
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="on",
        http=TimedConnection,
        ws="none",
        proxy_headers=False,
        server_header=False,
        ssl_certfile=cert,
        ssl_keyfile=key,
        timeout_graceful_shutdown=1,
    )
    await QuietServer(config).serve(sockets=[sock])
    await asyncio.sleep(0)
