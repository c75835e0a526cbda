"""HTTP transports to servers: the SDK's streamable HTTP or the older SSE, and their guards.

The server itself gives the address of its login, which is not trusted: it is checked against
the user's list of hosts, and must not lead from the open internet to this machine or its
network. Responses are requested uncompressed, so that a few bytes cannot become very many, and
have a longest length.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx2
from httpx2 import AsyncByteStream, ConnectError, DecodingError, StreamError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace

from toolrest.mcp.errors import McpUnavailable
from toolrest.sandbox.network.url_access import UrlAccess, UrlRefused, parse_web_url
from toolrest.urls import parse_url

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server
    from toolrest.mcp.transports.host import Host


LONGEST_MESSAGE = 64 << 20
_CONNECT = 10.0
_SSE_SILENCE = 3600.0


class HttpWire:
    """The SDK's two streams; the reading end reports its end."""

    def __init__(self, read: Any, write: Any) -> None:
        self.read = Tapped(read)
        self.write = write

    async def ending(self) -> str:
        """The reason why the connection ended."""
        return "it closed the connection"

    def last_output(self) -> str:
        """Nothing: a server over HTTP has no output besides its messages."""
        return ""


class Tapped:
    """A reading end that records when it ended."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.ended = asyncio.Event()
        self.on_end: Callable[[], None] = _nothing

    async def receive(self) -> Any:
        """The next message."""
        return await self._inner.receive()

    async def aclose(self) -> None:
        """Stop reading."""
        self._end()
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._end()
            raise

    @property
    def last_context(self) -> Any:
        """The context that the SDK's streams carry with a message."""
        return getattr(self._inner, "last_context", None)

    def _end(self) -> None:
        self.ended.set()
        self.on_end()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> Any:
        self._end()
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)


@asynccontextmanager
async def http_wire(server: Server, host: Host) -> AsyncIterator[HttpWire]:
    """Connect by streamable HTTP, or by SSE where the settings or the server ask for it."""
    auth = host.http_auth(server) if host.http_auth is not None else None
    async with AsyncExitStack() as stack:
        older = server.transport == "sse" or await _is_older(server, host, auth)
        if older:
            yield await _sse(server, host, auth, stack)
        else:
            yield await _streamable(server, host, auth, stack)


async def _is_older(server: Server, host: Host, auth: Any) -> bool:
    """Whether the server speaks only SSE: such a server answers a POST with 404 or 405."""
    opening = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    accept = {"accept": "application/json, text/event-stream"}
    async with _client(server, host, auth) as client:
        try:
            url = server.url or ""
            async with client.stream("POST", url, json=opening, headers=accept) as answer:
                return _by_status(server, answer.status_code)
        except httpx2.HTTPError as error:
            raise McpUnavailable(f"{server.target} cannot be reached: {_message(error)}") from None
        except McpUnavailable:
            raise
        except Exception as error:
            # The errors of the SDK's login code have no common base.
            raise McpUnavailable(f"{server.target}: {_message(error)}") from None


def _by_status(server: Server, status: int) -> bool:
    if status in (401, 403):
        raise McpUnavailable(
            f"{server.target} wants a login (HTTP {status}); "
            f"run: toolrest mcp login {server.name}, or set bearer_token_env_var"
        )
    return status in (404, 405)


def _client(server: Server, host: Host, auth: Any, silence: float | None = None) -> Any:
    limit = server.row.tool_timeout_max_sec if silence is None else silence
    return httpx2.AsyncClient(
        headers={**PLAIN, **server.headers},
        auth=auth,
        event_hooks=guards(server, host.may_connect),
        timeout=httpx2.Timeout(_CONNECT, read=limit),
        follow_redirects=False,
    )


async def _streamable(server: Server, host: Host, auth: Any, stack: AsyncExitStack) -> HttpWire:
    client = await stack.enter_async_context(_client(server, host, auth))
    read, write = await stack.enter_async_context(
        streamable_http_client(
            server.url or "", http_client=client, max_sse_event_size=LONGEST_MESSAGE
        )
    )
    return HttpWire(read, write)


async def _sse(server: Server, host: Host, auth: Any, stack: AsyncExitStack) -> HttpWire:
    own_auth = auth

    def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
        return _client(server, host, own_auth, _SSE_SILENCE)

    read, write = await stack.enter_async_context(
        sse_client(server.url or "", httpx_client_factory=factory)
    )
    return HttpWire(read, write)


def _message(error: Exception) -> str:
    return str(error) or type(error).__name__


def _nothing() -> None:
    """Default of callbacks that are not set."""


MayConnect = Callable[["Server"], "str | None"]
PLAIN = {"Accept-Encoding": "identity"}
_PLAIN_NAMES = ("", "identity")


def guards(server: Server, may_connect: MayConnect) -> dict[str, list[Any]]:
    """Hooks for an HTTP client; a denied address is a connection error."""

    async def leaving(request: Any) -> None:
        reason = await _refusal(server, str(request.url), may_connect)
        if reason is not None:
            raise ConnectError(reason, request=request)

    async def coming(response: Any) -> None:
        name = response.headers.get("content-encoding", "").strip().lower()
        if name not in _PLAIN_NAMES:
            reason = f"the answer is packed as {name[:40]}, which was not asked for"
            raise DecodingError(reason, request=response.request)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = Bounded(response.stream)  # the SDK bounds events, but no documents

    return {"request": [leaving], "response": [coming]}


class Bounded(AsyncByteStream):
    """The body of a response; StreamError past the longest length."""

    def __init__(self, inner: AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > LONGEST_MESSAGE:
                raise StreamError(f"the answer has more than {LONGEST_MESSAGE:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()


async def _refusal(server: Server, url: str, may_connect: MayConnect) -> str | None:
    try:
        parse_url(url)
    except ValueError as error:
        return f"it asks for {url[:200]}: {error}"
    there = replace(server, url=url)
    if (there.host, there.port) == (server.host, server.port):
        return None
    reason = may_connect(there)
    if reason is not None:
        return f"it asks for {url[:200]}, but {reason}"
    if await _is_public(server.url or "") and not await _is_public(url):
        return f"it asks for {url[:200]}, which is on this machine or its own network"
    return None


async def _is_public(url: str) -> bool:
    try:
        await UrlAccess().addresses(parse_web_url(url))
    except UrlRefused:
        return False
    return True
