"""The MCP server: a session's tools for any client, behind the session's own gate.

Nothing here decides or runs anything. A `tools/call` becomes a call item, goes through the same
gate as a model's would, and its output goes back as an MCP result.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from toolrest import __version__
from toolrest.errors import Rejected
from toolrest.events import Event, ToolCallDelta, ToolCallProgress
from toolrest.items import Answered, FunctionCall
from toolrest.serve import elicit as asking
from toolrest.serve import roots
from toolrest.serve.call_rounds import CallRound, FormQuestion
from toolrest.serve.mcp_specs import offered
from toolrest.wire.items.encode import encode

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from toolrest.agent.rest import Toolrest
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk

    Open = Callable[[str, Config, OnAsk], Toolrest]
    Ctx = ServerRequestContext[Any, Any]

_ASKED: Final = "approval"
_PENDING_SECONDS: Final = 600
_ROOTS_SECONDS: Final = 10
_PROGRESS_SECONDS: Final = 0.2


class NoRoots(Exception):
    """Raised when the client's roots have to be listed first."""


class ToolServer:
    """The MCP server of one workspace: its sessions and running calls.

    `open` makes a session from settings. Clients whose roots leave the same folders share a
    session, and so its programs, as all of them act for the person who started the server.
    """

    def __init__(self, config: Config, workspace: str, open_session: Open) -> None:
        self._config = config
        self._workspace = workspace
        self._open = open_session
        self._sessions: dict[tuple[str, ...] | None, Toolrest] = {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._running: dict[str, CallRound] = {}
        self._pending: dict[str, tuple[CallRound, FormQuestion[Any], str]] = {}
        self._calls_made = 0

    @property
    def main(self) -> Toolrest:
        """The session with all the rights of the launcher."""
        return self._session(None)

    async def aclose(self) -> None:
        """End every call and close every session."""
        for call in list(self._running.values()):
            await call.cancel()
        for rest in self._sessions.values():
            await rest.aclose()
        self._sessions.clear()

    def server(self) -> Server[Any]:
        """The SDK's server, ready for a transport."""
        server: Server[Any] = Server(
            "toolrest",
            version=__version__,
            title="Toolrest",
            instructions=self._instructions(),
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._roots_changed
        )
        return server

    def _instructions(self) -> str:
        settings = self._config.value
        return (
            f"Tools for the folder {self._workspace}. Sandbox: {settings.sandbox_mode}; approval: "
            f"{settings.approval_policy}. A denied call names the setting that allows it."
        )

    # Requests

    async def _list(self, ctx: Ctx, params: Any) -> types.ListToolsResult:
        asks = asking.can_ask(ctx.session.client_capabilities)
        return types.ListToolsResult.model_validate({"tools": offered(self.main, asks=asks)})

    async def _call(
        self, ctx: Ctx, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        given = params.input_responses or {}
        try:
            if params.request_state and params.request_state in self._pending:
                call = self._resume(params)
            else:
                rest = await self._session_for(ctx, params.name, given.get("roots"))
                call = self._start(rest, params, asking.can_ask(ctx.session.client_capabilities))
        except NoRoots:
            wanted: Any = {"roots": types.ListRootsRequest()}
            return types.InputRequiredResult(input_requests=wanted)
        except Rejected as error:
            return _refusal(error.message)
        stop = _report_progress(call, ctx)
        left_open = False
        try:
            while isinstance(found := await call.next(), FormQuestion):
                if ctx.session.can_send_request:
                    found.answer(await _elicit(ctx, found))
                    continue
                left_open = True
                return self._hand_back(call, found, params)
            return _result(found)
        finally:
            stop()
            if not left_open:
                self._running.pop(call.item.call_id or "", None)
                with anyio.CancelScope(shield=True):
                    await call.cancel()

    def _start(self, rest: Toolrest, params: types.CallToolRequestParams, asks: bool) -> CallRound:
        self._calls_made += 1
        call_id = f"mcp-{self._calls_made}"
        item = FunctionCall(call_id, params.name, params.arguments or {}, wire="mcp")
        call = self._running[call_id] = CallRound(rest, item, asks=asks)
        return call

    # Questions

    def _hand_back(
        self, call: CallRound, question: FormQuestion[Any], params: types.CallToolRequestParams
    ) -> types.InputRequiredResult:
        """Return the question as the result, for clients that take no requests and call again."""
        state = secrets.token_urlsafe(32)
        self._pending[state] = (call, question, _identity(params))
        loop = asyncio.get_running_loop()
        loop.call_later(_PENDING_SECONDS, self._expire, state)
        wanted: Any = {_ASKED: types.ElicitRequest(params=question.form())}
        return types.InputRequiredResult(input_requests=wanted, request_state=state)

    def _resume(self, params: types.CallToolRequestParams) -> CallRound:
        call, question, identity = self._pending[params.request_state or ""]
        if identity != _identity(params):
            raise Rejected("this request state belongs to a call with other arguments")
        del self._pending[params.request_state or ""]
        given = (params.input_responses or {}).get(_ASKED)
        question.answer(given if isinstance(given, types.ElicitResult) else None)
        return call

    def _expire(self, state: str) -> None:
        if state in self._pending:
            call, question, _ = self._pending.pop(state)
            question.answer(None)
            self._running.pop(call.item.call_id or "", None)

    # Sessions and roots

    def _session(self, folders: tuple[str, ...] | None) -> Toolrest:
        if folders not in self._sessions:
            workspace, config = self._workspace, self._config
            if folders is not None:
                workspace, config, _ = roots.narrowed(config, workspace, folders)
            self._sessions[folders] = self._open(
                workspace, config, asking.ThroughClient(self._running)
            )
        return self._sessions[folders]

    async def _session_for(self, ctx: Ctx, tool: str, given: Any) -> Toolrest:
        """The session that the client's roots leave; they are asked for once a connection."""
        capabilities = ctx.session.client_capabilities
        if capabilities is None or capabilities.roots is None:
            return self._session(None)
        key = _connection(ctx)
        if key is not None and key in self._roots:
            return self._session(self._roots[key])
        if not self._needs_roots(tool):
            return self._session(None)
        if isinstance(given, types.ListRootsResult):
            found = roots.folders(str(root.uri) for root in given.roots)
        elif ctx.session.can_send_request:
            found = await _list_roots(ctx)
        else:
            raise NoRoots
        if key is not None:
            self._roots[key] = found
        return self._session(found)

    def _needs_roots(self, name: str) -> bool:
        """Whether folders matter to a tool; not to one that touches nothing and starts nobody."""
        tool = self.main.find(name)
        if tool is None:
            return True
        return bool(tool.typical.reads or tool.typical.mutating or tool.group == "agents")

    async def _roots_changed(self, ctx: Ctx, params: Any) -> None:
        self._roots.pop(_connection(ctx) or "", None)


def _connection(ctx: Ctx) -> str | None:
    """Id of the connection: the HTTP session's; standard input has only one.

    None for a request over HTTP without a session, as clients of 2026-07-28 make them.
    """
    headers = getattr(ctx.request, "headers", None)
    return "" if headers is None else headers.get("mcp-session-id") or None


async def _list_roots(ctx: Ctx) -> tuple[str, ...]:
    try:
        found = await ctx.session.send_request(
            types.ListRootsRequest(),
            types.ListRootsResult,
            request_read_timeout_seconds=_ROOTS_SECONDS,
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
    except (MCPError, TimeoutError) as error:
        raise Rejected(
            f"the client has roots but did not list them ({error}); without them nothing runs"
        ) from error
    return roots.folders(str(root.uri) for root in found.roots)


async def _elicit(ctx: Ctx, question: FormQuestion[Any]) -> types.ElicitResult | None:
    asked = question.form()
    try:
        return await ctx.session.elicit_form(
            asked.message, asked.requested_schema, related_request_id=ctx.request_id
        )
    except MCPError:
        return None


def _report_progress(call: CallRound, ctx: Ctx) -> Callable[[], None]:
    """Pass on the call's progress while it runs, at most a few times a second."""
    tasks: set[asyncio.Task[None]] = set()
    steps = 0
    last = 0.0

    def heard(event: Event) -> None:
        nonlocal steps, last
        if not isinstance(event, ToolCallProgress | ToolCallDelta):
            return
        if event.call_id != call.item.call_id:
            return
        now = time.monotonic()
        if isinstance(event, ToolCallDelta):
            if now - last < _PROGRESS_SECONDS or not event.text.strip():
                return
            message = event.text.strip().splitlines()[-1][:200]
        else:
            message = event.message
        steps, last = steps + 1, now
        task = asyncio.ensure_future(ctx.session.report_progress(steps, None, message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return call.rest.subscribe(heard)


def _identity(params: types.CallToolRequestParams) -> str:
    return json.dumps([params.name, params.arguments or {}], sort_keys=True)


def _result(answered: Answered) -> types.CallToolResult:
    return types.CallToolResult.model_validate(encode([answered])[0])


def _refusal(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
