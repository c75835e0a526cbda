"""The conversation with a connected server: the SDK's session, and requests both ways.

The session speaks both generations of the protocol; results are kept as the JSON that came: one
invalid entry must not make a whole result unreadable. A server may request roots, an elicitation
(a question to the user) and a completion, in a request of its own or, since 2026-07-28, in the
answer to one of ours.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
    ListRootsResult,
    PaginatedRequestParams,
    Request,
    Root,
    Tool,
)
from pydantic import TypeAdapter, ValidationError

from toolrest.items import JSONObject
from toolrest.mcp.errors import McpError, McpRefused, McpTimeout, McpUnavailable

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server
    from toolrest.mcp.transports.host import Host, Wire


OnProgress: TypeAlias = Callable[[float, float | None, str | None], None]
MOST_PAGES = 200
_TOO_LARGE: Final = re.compile(r"exceeded the (\d+) byte limit|has more than ([\d,]+) bytes")
"""One answer of an open connection that is too large, in the words of httpx2 or of our own."""


_ANY: Final = TypeAdapter[Any](JSONObject)
_ROUNDS: Final = 20
"""Times that a server may answer one request with questions."""
_PAUSE: Final = 0.25
_CAME: ContextVar[JSONObject | None] = ContextVar("_CAME", default=None)
"""The last result of this task, as it came."""


class _Dispatcher(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher; keeps results, and lets the SDK see only tools that it can read."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **more: Any
    ) -> JSONObject:
        """Send a request and wait for its result."""
        came = await super().send_raw_request(method, params, opts, **more)
        _CAME.set(came)
        listed = came.get("tools")
        if method != "tools/list" or not isinstance(listed, list):
            return came
        return {**came, "tools": [entry for entry in listed if _is_readable(entry)]}


class Talk:
    """An open MCP session with a server."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._limits: dict[asyncio.Timeout, float] = {}
        self._pauses = 0
        self.capabilities: JSONObject = {}
        self.instructions: str | None = None
        self.server_info: JSONObject = {}
        self.rejected: dict[str, str] = {}
        """Tools that the protocol forbids to use, with the reason."""

    async def initialize(self, *, newer_first: bool = False) -> None:
        """Initialize the session in one of the protocol's two ways, or else in the other."""
        session = self._session
        ways = [session.initialize, session.discover]
        first, second = reversed(ways) if newer_first else ways
        try:
            await first()
        except (MCPError, ValidationError, RuntimeError) as error:
            if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
                raise McpUnavailable("it closed the connection") from None
            try:
                await second()
            except (MCPError, ValidationError, RuntimeError):
                raise _refused_start(error) from None
        capabilities = session.server_capabilities
        if capabilities is not None:
            self.capabilities = capabilities.model_dump(by_alias=True, exclude_none=True)
        self.instructions = session.instructions
        if session.server_info is not None:
            self.server_info = session.server_info.model_dump(by_alias=True, exclude_none=True)

    @property
    def is_modern(self) -> bool:
        """Whether the session speaks 2026-07-28 or later."""
        return self._session.discover_result is not None

    async def watch(self) -> None:
        """Let a server of 2026-07-28 notify of changed tools, until it stops or is cancelled."""
        tools = self.capabilities.get("tools")
        if not self.is_modern or not tools or not tools.get("listChanged"):
            return
        try:
            async with listen(self._session, tools_list_changed=True) as changes:
                async for _ in changes:
                    pass  # the session's handler of messages gets them as well
        except (MCPError, SubscriptionLost):
            return

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
                progress = self._progress(limit, seconds, last, on_progress)
                try:
                    return await self._complete(method, params or {}, progress)
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

    async def _complete(self, method: str, params: JSONObject, progress: Any) -> JSONObject:
        """Send a request, once more with the answers to each question that comes back."""
        more: JSONObject = {}
        for _ in range(_ROUNDS):
            result = await self._send(method, {**params, **more}, progress)
            if result.get("resultType") != "input_required":
                return result
            more = await self._answers(result)
        raise McpRefused(f"{method} failed: the server asked more than {_ROUNDS} times")

    async def _send(self, method: str, params: JSONObject, progress: Any) -> JSONObject:
        _CAME.set(None)
        try:
            if method == "tools/list":
                # The session learns here which arguments go into headers.
                await self._session.list_tools(params=PaginatedRequestParams(**params))
            else:
                request = Request[JSONObject, str](method=method, params=params)
                await self._session.send_request(request, _ANY, progress_callback=progress)
        except ValidationError:
            pass  # read entry by entry
        came = _CAME.get()
        if came is None:
            raise McpError(f"{method} failed: its parameters cannot be sent")
        return came

    async def _answers(self, result: JSONObject) -> JSONObject:
        """The parameters that answer the questions of a server."""
        try:
            wanted = InputRequiredResult.model_validate(result)
        except ValidationError:
            raise McpRefused("it asks for something that this client does not know") from None
        more: JSONObject = {}
        if wanted.request_state is not None:
            more["requestState"] = wanted.request_state
        if not wanted.input_requests:
            await asyncio.sleep(_PAUSE)
            return more
        given: JSONObject = {}
        for key, request in wanted.input_requests.items():
            context = ClientRequestContext(session=self._session, request_id=key)
            answer = await self._session.dispatch_input_request(context, request)
            if isinstance(answer, ErrorData):
                raise MCPError.from_error_data(answer)
            given[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**more, "inputResponses": given}

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

    def _progress(
        self, limit: asyncio.Timeout, seconds: float, last: float, on_progress: OnProgress | None
    ) -> Any:
        if on_progress is None:
            return None
        loop = asyncio.get_running_loop()

        async def progress(done: float, total: float | None, message: str | None) -> None:
            if limit not in self._limits:
                return  # the answer came while this was on its way
            if not self._pauses and not limit.expired():
                limit.reschedule(min(loop.time() + seconds, last))
            on_progress(done, total, message)

        return progress

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
        listed = await self.pages("tools/list", "tools", seconds)
        self.rejected = dict(_misdirected(listed)) if self.is_modern else {}
        return listed


@asynccontextmanager
async def talk_over(
    wire: Wire, host: Host, server: Server, on_notice: Callable[[str], None]
) -> AsyncIterator[Talk]:
    """A session over open streams; `on_notice` gets the methods of the server's notifications."""
    answers = Answers(server, host)

    async def on_message(message: Any) -> None:
        method = getattr(message, "method", None)
        if isinstance(method, str):
            on_notice(method)

    session = ClientSession(
        dispatcher=_Dispatcher(wire.read, wire.write),
        client_info=Implementation(name="toolrest", version=host.client_version),
        message_handler=on_message,
        list_roots_callback=answers.roots,
        elicitation_callback=answers.elicit if host.ask is not None else None,
        sampling_callback=answers.sample if host.sample is not None else None,
    )
    async with session:
        talk = Talk(session)
        answers.pause = talk.paused
        yield talk


def _is_readable(entry: Any) -> bool:
    try:
        Tool.model_validate(entry)
    except ValidationError:
        return False
    return True


def _misdirected(listed: list[Any]) -> Iterator[tuple[str, str]]:
    """Tools whose arguments would go into headers that the protocol does not allow."""
    for entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("inputSchema"), dict):
            reason = find_invalid_x_mcp_header(entry["inputSchema"])
            if reason is not None:
                yield str(entry.get("name")), f"its x-mcp-header is not allowed: {reason}"


def _refused_start(error: Exception) -> McpRefused:
    if isinstance(error, MCPError):
        return McpRefused(f"it refused to start: {error.message}", error.code)
    reason = "no valid answer" if isinstance(error, ValidationError) else str(error)
    return McpRefused(f"it cannot be used: {reason}")


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
