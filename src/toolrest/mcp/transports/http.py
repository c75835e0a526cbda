"""HTTP transports to servers: the SDK's streamable HTTP or the older SSE, and their guards.

The server itself gives the address of its login, which is not trusted: it is checked against
the user's list of hosts, and must not lead from the open internet to this machine or its
network. Responses are requested uncompressed, so that a few bytes cannot become very many, and
have a longest length.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import httpx2
from httpx2 import AsyncByteStream, ConnectError, DecodingError, StreamError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import LATEST_MODERN_VERSION
from msgspec.structs import replace

from toolrest.items import JSONObject
from toolrest.mcp.errors import McpLoginNeeded, McpUnavailable
from toolrest.sandbox.network.url_access import UrlAccess, UrlRefused, parse_web_url
from toolrest.urls import parse_url

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server
    from toolrest.mcp.transports.host import Host


LONGEST_MESSAGE = 64 << 20
_CONNECT = 10.0
_MODERN = (b'"supportedVersions"', b"-32022")
"""What only a server of 2026-07-28 says to the probe: its versions, or that it lacks ours."""
_LONGEST_PROBE = 1 << 20
_SAYS_MORE = (401, 403, 429)
_SAID = 300
_SCOPE = re.compile(r'\bscope="([^"]{1,300})"')
_SSE_SILENCE = 3600.0


class HttpWire:
    """The SDK's two streams; the reading end reports its end."""

    is_modern = False
    offline = False

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
        speaks = "sse" if server.transport == "sse" else await _probe(server, host, auth)
        if speaks == "sse":
            yield await _sse(server, host, auth, stack)
        else:
            wire = await _streamable(server, host, auth, stack)
            wire.is_modern = speaks == "modern"
            yield wire


Speaks: TypeAlias = Literal["sse", "streamable", "modern"]


async def _probe(server: Server, host: Host, auth: Any) -> Speaks:
    """Which protocol the server speaks; one of SSE alone answers a POST with 404 or 405."""
    info = {"name": "toolrest", "version": host.client_version}
    meta: JSONObject = {
        PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
        CLIENT_INFO_META_KEY: info,
        CLIENT_CAPABILITIES_META_KEY: {},
    }
    opening = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
    headers = {
        "accept": "application/json, text/event-stream",
        MCP_METHOD_HEADER: "server/discover",
        MCP_PROTOCOL_VERSION_HEADER: LATEST_MODERN_VERSION,
    }
    async with _client(server, host, auth) as client:
        try:
            url = server.url or ""
            async with client.stream("POST", url, json=opening, headers=headers) as answer:
                if answer.status_code in (401, 403):
                    raise McpUnavailable(str(_error_in(answer)["message"]))
                return await _spoken(answer)
        except httpx2.HTTPError as error:
            raise McpUnavailable(f"cannot reach {server.target}: {_message(error)}") from None
        except McpUnavailable:
            raise
        except Exception as error:
            # The errors of the SDK's login code have no common base.
            raise McpUnavailable(f"{server.target}: {_message(error)}") from None


async def _spoken(answer: httpx2.Response) -> Speaks:
    if answer.status_code in (404, 405):
        return "sse"
    read = b""
    async for chunk in answer.aiter_bytes():
        read += chunk
        if any(word in read for word in _MODERN):
            return "modern"
        if len(read) > _LONGEST_PROBE:
            break
    return "streamable"


class _Client(httpx2.AsyncClient):
    """The HTTP client of one server: a refusal becomes an error in the protocol's own form.

    The SDK passes on the words of such an error, but of no other, and what a login raises would
    end the connection.
    """

    def __init__(self, server: Server, **options: Any) -> None:
        super().__init__(**options)
        self._server = server
        self._refused: httpx2.Response | None = None
        self.event_hooks["response"].append(self._record)

    async def _record(self, response: httpx2.Response) -> None:
        if response.status_code in (401, 403) and str(response.request.url) == self._server.url:
            await response.aread()  # the login's next requests close it
            self._refused = response

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a login that ended is the refusal that made it necessary."""
        scopes = ""
        try:
            answer = await super().send(request, **options)
        except (httpx2.HTTPError, httpx2.StreamError):
            raise
        except Exception as error:
            if self._refused is None:
                raise
            answer = self._refused
            scopes = error.scopes if isinstance(error, McpLoginNeeded) else ""
        if answer.status_code < 400 or request.method != "POST":
            return answer
        return await _in_own_words(self._server, answer, scopes)


async def _in_own_words(server: Server, answer: httpx2.Response, scopes: str) -> httpx2.Response:
    """An answer that refuses a request, as a JSON-RPC error that says all that it said."""
    await answer.aread()
    error, status = _error_in(answer), answer.status_code
    if status == 404 and not error and "mcp-session-id" in answer.request.headers:
        code, message = CONNECTION_CLOSED, "the session has ended (HTTP 404)"
    elif (error or status in (404, 405)) and status not in _SAYS_MORE and status < 500:
        return answer
    else:
        code, message = error.get("code", INTERNAL_ERROR), refusal(server, answer, scopes)
    made = {"jsonrpc": "2.0", "id": None, "error": {**error, "code": code, "message": message}}
    return httpx2.Response(answer.status_code, json=made, request=answer.request)


def refusal(server: Server, answer: httpx2.Response, scopes: str = "") -> str:
    """The words for an answer that refuses a request, and what the user can do about it.

    `scopes` are those of a login that has what the server asks for beside what it has granted.
    """
    status, headers = answer.status_code, answer.headers
    said = _said(answer)
    text = f"HTTP {status}" + (f": {said}" if said else f" {answer.reason_phrase}").rstrip()
    login = f"toolrest mcp login {server.name}"
    scope = _SCOPE.search(headers.get("www-authenticate", ""))
    if status == 403 and scope is not None:
        wanted = shlex.quote(",".join((scopes or scope[1]).split()))  # people paste this line
        return f"{text}; it wants the scope {scope[1]}; run: {login} --scopes {wanted}"
    if status in (401, 403) and "authorization" in {name.lower() for name in server.headers}:
        return f"{text}; {server.target} refused the Authorization that your settings give it"
    if status in (401, 403):
        again = " again" if "authorization" in answer.request.headers else ""
        return f"{text}; log in{again} with: {login}"
    if status == 429 and headers.get("retry-after", "").isdigit():
        return f"{text}; try again in {headers['retry-after']} s"
    return text


def _error_in(answer: httpx2.Response) -> JSONObject:
    """The JSON-RPC error in a body; empty without one."""
    try:
        error = answer.json().get("error")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return error if isinstance(error, dict) and isinstance(error.get("code"), int) else {}


def _said(answer: httpx2.Response) -> str:
    """What a body says in plain words: a field of its JSON, or text that is no page."""
    body, kind = answer.text.strip(), answer.headers.get("content-type", "")
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return "" if "html" in kind or body.startswith("<") else " ".join(body.split())[:_SAID]
    while isinstance(found, dict):
        keys = ("error_description", "message", "detail", "error", "title")
        found = next((found[key] for key in keys if found.get(key)), "")
    return " ".join(str(found).split())[:_SAID]


def _client(server: Server, host: Host, auth: Any, silence: float | None = None) -> Any:
    limit = server.row.tool_timeout_max_sec if silence is None else silence
    return _Client(
        server,
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
