"""The network proxy outside the sandbox: it connects to the hosts of an allowlist only.

It speaks HTTP, CONNECT and SOCKS5 on one unix socket, runs in the host's event loop, resolves a
name once and connects to the very address that was judged. Everything else a confined command
could try ends in a namespace that has only loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Sequence

from toolrest.private_files import listen_privately
from toolrest.sandbox.backends.engine import PROXY_SOCKET, Proxy
from toolrest.sandbox.network import forwarder
from toolrest.sandbox.network import http as proxy_http
from toolrest.sandbox.network import socks as proxy_socks
from toolrest.sandbox.network.hosts import (
    Allowlist,
    BadHost,
    Resolver,
    parse_address,
    parse_host,
    resolve_host,
)
from toolrest.sandbox.network.tunnel import Blocked, Protocol, Reason, Refusal, Stream

PORT = 3128
_CONNECT_PATIENCE = 15.0
_REQUEST_PATIENCE = 30.0
_MOST_CONNECTIONS = 256
_WAITING = 128


class NetworkProxy:
    """The allowlist of one session, listening.

    Nothing is reached that the list `ceiling` does not allow, where there is one.
    `on_blocked` is called for every connection that is turned away; it must not block.
    `resolve` returns the addresses of a name.
    """

    def __init__(
        self,
        allowed: Sequence[str],
        socket_path: str,
        *,
        denied: Sequence[str] = (),
        ceiling: Sequence[str] | None = None,
        on_blocked: Callable[[Blocked], None] | None = None,
        resolve: Resolver | None = None,
    ) -> None:
        within = None if ceiling is None else Allowlist(ceiling)
        self.allowlist = Allowlist(allowed, denied=denied, within=within)
        self.socket_path = socket_path
        self._on_blocked = on_blocked or _nothing
        self._resolve = resolve or resolve_host
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        folder = os.open(os.path.dirname(self.socket_path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listen_privately(listening, folder, self.socket_path, _WAITING)
        finally:
            os.close(folder)
        self._server = await asyncio.start_unix_server(
            self._accept, sock=listening, limit=proxy_http.MOST_HEADER
        )

    async def aclose(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(OSError):
            os.unlink(self.socket_path)

    def for_sandbox(self) -> Proxy:
        """What the sandbox mounts, sets and runs so that commands find this proxy."""
        script = os.path.abspath(forwarder.__file__)
        python = (sys.executable, "-I", "-S", script)
        return Proxy(self.socket_path, proxy_env(), (*python, str(PORT), PROXY_SOCKET))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _MOST_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._handle(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_PATIENCE):
                first = await reader.readexactly(1)
            speak = proxy_socks.serve if first == proxy_socks.VERSION else proxy_http.serve
            await speak(self.dial, first, reader, writer)
        except (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            return  # the other side left, or never made sense
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def dial(self, host: str, port: int, protocol: Protocol) -> Stream:
        """A connection to an allowed host; raises Refusal and reports it otherwise."""
        try:
            name = parse_host(host)
        except BadHost as problem:
            raise self._refuse(host, port, protocol, "invalid_host", str(problem)) from None
        if not self.allowlist.allows_name(name, port):
            message = "the host is not in allowed_network_domains"
            raise self._refuse(name, port, protocol, "not_allowed", message)
        addresses = await self._addresses(name, port)
        allowed = [
            text
            for text in addresses
            if (address := parse_address(text)) and self.allowlist.allows_address(address, port)
        ]
        if addresses and not allowed:
            message = "the host leads to a private address, which is not listed"
            raise self._refuse(name, port, protocol, "not_allowed_local", message)
        return await _connect_first(allowed, port)

    async def _addresses(self, name: str, port: int) -> Sequence[str]:
        if parse_address(name) is not None:
            return [name]
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE):
                return await self._resolve(name, port)
        except (OSError, UnicodeError, TimeoutError):
            raise Refusal("the host name cannot be resolved") from None

    def _refuse(
        self, host: str, port: int, protocol: Protocol, reason: Reason, message: str
    ) -> Refusal:
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in host[:253])
        blocked = Blocked(shown, port, protocol, reason)
        self._on_blocked(blocked)
        return Refusal(message, blocked)


async def _connect_first(addresses: Sequence[str], port: int) -> Stream:
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_PATIENCE):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError):
            continue
    raise Refusal("the host cannot be reached")


def proxy_env() -> dict[str, str]:
    """Variables by which programs find a proxy."""
    http, socks = f"http://127.0.0.1:{PORT}", f"socks5h://127.0.0.1:{PORT}"
    env = {"HTTP_PROXY": http, "HTTPS_PROXY": http, "WS_PROXY": http, "WSS_PROXY": http}
    env |= {"ALL_PROXY": socks, "FTP_PROXY": socks, "NO_PROXY": "localhost,127.0.0.1,::1"}
    env |= {name.lower(): value for name, value in env.items()}
    return env | {"NODE_USE_ENV_PROXY": "1", "ELECTRON_GET_USE_PROXY": "true"}


def _nothing(_: Blocked) -> None:
    """The default for `on_blocked`: do nothing."""
