"""Listening sockets and the web server behind them, for MCP over HTTP and the browser page."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING

import uvicorn

from toolrest.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
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
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return sock


async def serve(
    app: ASGIApp, sock: socket.socket, cert: str | None = None, key: str | None = None
) -> None:
    """Serve until the process is asked to stop; with a certificate and its key, over HTTPS."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        ssl_certfile=cert,
        ssl_keyfile=key,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    await server.serve(sockets=[sock])
    await asyncio.sleep(0)
