"""The conversation with a connected server: the SDK's session, and requests both ways.

Results are kept as the JSON that came: one invalid entry must not make a whole result unreadable.
A server may request roots, an elicitation (a question to the user) and a completion.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    Root,
)

from toolrest.items import JSONObject
from toolrest.mcp.errors import McpError, McpRefused, McpTimeout, McpUnavailable

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server
    from toolrest.mcp.transports.host import Host, Wire


OnProgress: TypeAlias = Callable[[float, float | None, str | None], None]
MOST_PAGES = 200
_TOO_LARGE: Final = re.compile(r"exceeded the (\d+) byte limit|has more than ([\d,]+) bytes")
"""One answer of an open connection that is too large, in the words of httpx2 or of our own."""


class Talk:
    """An open MCP session with a server."""

    def __init__(
        self, session: ClientSession, dispatcher: JSONRPCDispatcher[Any], server: Server
    ) -> None:
        self._session = session
        self._dispatcher = dispatcher
        self._server = server
        self._headers: dict[str, str] = {}
        self._limits: dict[asyncio.Timeout, float] = {}
        self._pauses = 0
        self.capabilities: JSONObject = {}
        self.instructions: str | None = None
        self.server_info: JSONObject = {}

    async def hello(self) -> None:
        """Initialize the session, in the newer way for servers that know only that."""
        try:
            await self._session.initialize()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise McpUnavailable("it closed the connection") from None
            try:
                await self._session.discover()
            except MCPError:
                raise McpRefused(f"it refused to start: {error.message}", error.code) from None
        session = self._session
        capabilities = session.server_capabilities
        if capabilities is not None:
            self.capabilities = capabilities.model_dump(by_alias=True, exclude_none=True)
        self.instructions = session.instructions
        if session.server_info is not None:
            self.server_info = session.server_info.model_dump(by_alias=True, exclude_none=True)
        if self._server.url is not None and session.protocol_version is not None:
            self._headers = {"mcp-protocol-version": session.protocol_version}

    async def request(
        self,
        method: str,
        params: JSONObject | None,
        *,
        seconds: float,
        at_most: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> JSONObject:
        """Send a request and wait. Progress restarts the time, up to `at_most`; then McpTimeout."""
        loop = asyncio.get_running_loop()
        last = loop.time() + max(seconds, at_most or seconds)
        try:
            async with asyncio.timeout(None if self._pauses else seconds) as limit:
                self._limits[limit] = seconds
                options = self._options(limit, seconds, last, on_progress)
                try:
                    return await self._dispatcher.send_raw_request(method, params, options)
                finally:
                    del self._limits[limit]
        except TimeoutError:
            raise McpTimeout(f"timed out awaiting {method} after {seconds:g}s") from None
        except MCPError as error:
            if found := _TOO_LARGE.search(error.message):
                size = found[2] or f"{int(found[1]):,}"
                reason = f"{method} failed: the answer has more than {size} bytes; ask for less"
                raise McpRefused(reason, error.code) from None
            if error.code == CONNECTION_CLOSED:
                raise McpUnavailable(f"{method} failed: the connection was closed") from None
            raise McpRefused(f"{method} failed: {error.message}", error.code) from None
        except (OSError, RuntimeError) as error:
            raise McpUnavailable(f"{method} failed: {str(error) or type(error).__name__}") from None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the time limits of requests while the user answers an elicitation."""
        self._pauses += 1
        self._reschedule(lambda _seconds: None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                now = asyncio.get_running_loop().time()
                self._reschedule(lambda seconds: now + seconds)

    def _reschedule(self, when: Callable[[float], float | None]) -> None:
        for limit, seconds in self._limits.items():
            if not limit.expired():
                limit.reschedule(when(seconds))

    def _options(
        self,
        limit: asyncio.Timeout,
        seconds: float,
        last: float,
        on_progress: OnProgress | None,
    ) -> Any:
        options: JSONObject = {"headers": self._headers} if self._headers else {}
        if on_progress is None:
            return options
        loop = asyncio.get_running_loop()

        async def progress(done: float, total: float | None, message: str | None) -> None:
            if limit not in self._limits:
                return  # the answer came while this was on its way
            if not self._pauses and not limit.expired():
                limit.reschedule(min(loop.time() + seconds, last))
            on_progress(done, total, message)

        options["on_progress"] = progress
        return options

    async def pages(self, method: str, key: str, seconds: float) -> list[Any]:
        """Every entry of a list that comes in pages."""
        entries: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            params = {"cursor": cursor} if cursor is not None else None
            page = await self.request(method, params, seconds=seconds)
            found = page.get(key)
            if not isinstance(found, list):
                raise McpError(f"{method} failed: the answer has no list `{key}`")
            entries += found
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return entries
            if cursor in seen:
                raise McpError(f"{method} returned duplicate cursor")
            seen.add(cursor)
        raise McpError(f"{method} failed: more than {MOST_PAGES} pages")

    async def tools(self, seconds: float) -> list[Any]:
        """Every tool that the server lists, as it describes them."""
        if "tools" not in self.capabilities:
            return []
        return await self.pages("tools/list", "tools", seconds)


@asynccontextmanager
async def talk_over(
    wire: Wire, server: Server, host: Host, on_notice: Callable[[str], None]
) -> AsyncIterator[Talk]:
    """A session over open streams; `on_notice` gets the methods of the server's notifications."""
    answers = Answers(server, host)

    async def on_message(message: Any) -> None:
        method = getattr(message, "method", None)
        if isinstance(method, str):
            on_notice(method)

    dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(wire.read, wire.write)
    session = ClientSession(
        dispatcher=dispatcher,
        client_info=Implementation(name="toolrest", version=host.client_version),
        message_handler=on_message,
        list_roots_callback=answers.roots,
        elicitation_callback=answers.elicit if host.ask is not None else None,
        sampling_callback=answers.sample if host.sample is not None else None,
    )
    async with session:
        talk = Talk(session, dispatcher, server)
        answers.pause = talk.paused
        yield talk


class Answers:
    """Callbacks for the SDK's session of one server."""

    def __init__(self, server: Server, host: Host) -> None:
        self._server = server
        self._host = host
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext

    async def roots(self, context: Any) -> Any:
        """The session's workspace, as the only root."""
        return ListRootsResult(roots=[Root(uri=f"file://{quote(p)}") for p in self._host.roots])

    async def elicit(self, context: Any, params: Any) -> Any:
        """Pass an elicitation to the user; refuse it where no user can be asked."""
        if self._host.ask is None:
            return _refusal("no user can be asked here")
        asked = params.model_dump(by_alias=True, exclude_none=True)
        schema = asked.get("requestedSchema")
        if not isinstance(schema, dict):
            # A page to be opened in a browser: only its address can be shown.
            schema = {"url": asked.get("url")}
        with self.pause():
            answer = await self._host.ask(self._server, str(asked.get("message", "")), schema)
        return ElicitResult.model_validate(answer)

    async def sample(self, context: Any, params: Any) -> Any:
        """Pass a request for a completion to the agent, which asks the user for approval first."""
        if self._host.sample is None:
            return _refusal("no model is available to servers here")
        asked = params.model_dump(by_alias=True, exclude_none=True, mode="json")
        try:
            with self.pause():
                made = await self._host.sample(self._server, asked)
        except McpError as error:
            return _refusal(str(error))
        return CreateMessageResult.model_validate(made)


def _refusal(message: str) -> Any:
    return ErrorData(code=INVALID_REQUEST, message=message)
