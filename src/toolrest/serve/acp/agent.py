"""The Agent Client Protocol over standard input and output: the agent inside an editor.

The editor opens sessions and sends prompts; it shows our events, and asks its user for our
approvals. Commands run in our sandbox, not in the editor's
terminals: their output comes as content of the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from acp.exceptions import RequestError
from acp.helpers import text_block, update_agent_message_text, update_current_mode
from acp.schema import (
    AcceptElicitationResponse,
    AgentCapabilities,
    CloseSessionResponse,
    ElicitationFormSessionMode,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionModeResponse,
    Usage,
)
from msgspec import Struct

from toolrest import __version__
from toolrest.agent.history.stored_sessions import exact_session
from toolrest.control.server import open_control
from toolrest.errors import ToolrestError
from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.serve import user_form
from toolrest.serve.acp import commands, modes, permission, stored
from toolrest.serve.acp.prompt import first_text, user_message
from toolrest.serve.acp.updates import Updates
from toolrest.serve.elicit import can_show

if TYPE_CHECKING:
    from acp.interfaces import Client

    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.gate.approval.user_questions import UserQuestions

VERSION = 1
_FAILED = -32603  # JSON-RPC's internal error
_STOPS = {"model_policy": "refusal", "model_incomplete": "max_tokens", "denied": "end_turn"}
"""Failures that the protocol has a word for. Editors drop a refused turn from their view, so it
is none of the others: those are errors."""


class SessionRequest(Struct):
    """The request for a session: its folders and servers, the approver, the session to resume."""

    cwd: str
    on_ask: OnAsk
    folders: Sequence[str] = ()
    servers: Sequence[Any] = ()
    resume: str | None = None


Open = Callable[[SessionRequest], "Conversation"]


class EditorAgent:
    """Answers one editor. `open_session` makes a session for a folder, or opens an earlier one.

    Sessions of `home` can be listed and loaded. `takes_all`: it honours the editor's MCP servers
    and further folders.
    """

    def __init__(
        self, open_session: Open, *, home: str | None = None, takes_all: bool = False
    ) -> None:
        self._open = open_session
        self._home = home
        self._takes_all = takes_all
        self._soon: set[asyncio.Future[None]] = set()
        self._sessions: dict[str, Conversation] = {}
        self._client: Client | None = None
        self._shows_forms = False

    def on_connect(self, conn: Client) -> None:
        """Take the editor's connection."""
        self._client = conn

    async def aclose(self) -> None:
        """End all sessions."""
        for conversation in list(self._sessions.values()):
            await conversation.aclose()
        self._sessions.clear()

    # What the editor asks for

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, **_: Any
    ) -> Any:
        """Agree on a version and return the agent's capabilities."""
        forms = getattr(client_capabilities, "elicitation", None)
        self._shows_forms = getattr(forms, "form", None) is not None
        return InitializeResponse(
            protocol_version=VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=self._home is not None,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=self._takes_all, sse=self._takes_all),
                session_capabilities=self._session_capabilities(),
            ),
            agent_info=Implementation(name="toolrest", title="Toolrest", version=__version__),
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Do nothing: keys come from the environment."""

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,
    ) -> Any:
        """Open a session in a folder."""
        conversation = self._start(cwd, additional_directories, mcp_servers, None)
        # The editor learns the id from the response, so what is sent for it has to come later.
        self._later(self._send(conversation.id, commands.offered(conversation)))
        return NewSessionResponse(session_id=conversation.id, modes=modes.state(conversation))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> Any:
        """Open an earlier session and show its messages and calls."""
        conversation = await self._reopen(cwd, additional_directories, mcp_servers, session_id)
        for update in stored.shown(conversation):
            await self._connected.session_update(session_id=session_id, update=update)
        await self._send(session_id, commands.offered(conversation))
        return LoadSessionResponse(modes=modes.state(conversation))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,
    ) -> Any:
        """Open an earlier session without showing it."""
        conversation = await self._reopen(cwd, additional_directories, mcp_servers, session_id)
        await self._send(session_id, commands.offered(conversation))
        return ResumeSessionResponse(modes=modes.state(conversation))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> Any:
        """The recorded sessions, the latest first, a page at a time."""
        if self._home is None:
            raise RequestError.method_not_found("session/list")
        return stored.page(self._home, cwd, cursor)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Any:
        """Narrow what the session may do, or go back to what the settings allow."""
        conversation = self._session(session_id)
        modes.change(conversation, mode_id)
        await self._send(session_id, update_current_mode(mode_id))
        return SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        """Run a slash command or one turn, sending updates to the editor."""
        conversation = self._session(session_id)
        if conversation.running:
            raise RequestError.invalid_request({"sessionId": "a turn of this session is running"})
        done = await commands.run(conversation, first_text(prompt))
        if done is not None and not done.prompt:
            await self._send(session_id, update_agent_message_text(done.answer))
            return PromptResponse(stop_reason="cancelled" if done.stopped else "end_turn")
        if done is not None:
            prompt = [text_block(done.prompt), *prompt[1:]]
        updates = Updates(conversation.rest.cwd)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        stop = conversation.rest.subscribe(queue.put_nowait)
        sending = asyncio.ensure_future(self._send_updates(session_id, updates, queue))
        try:
            result = await conversation.run([user_message(prompt)])
        finally:
            stop()
            queue.put_nowait(None)
            await sending
        if result.status == "failed":
            text = result.error or result.reason
            if result.reason not in _STOPS:
                raise RequestError(_FAILED, text)
            await self._send(session_id, update_agent_message_text(f"\n{text}\n"))
        return PromptResponse(stop_reason=_reason(result), usage=_usage(result))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the running turn."""
        conversation = self._sessions.get(session_id)
        if conversation is not None:
            await conversation.interrupt()

    async def close_session(self, session_id: str, **_: Any) -> Any:
        """End a session."""
        conversation = self._sessions.pop(session_id, None)
        if conversation is not None:
            await conversation.aclose()
        return CloseSessionResponse()

    # How

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise RuntimeError("no editor is connected")
        return self._client

    def _session(self, session_id: str) -> Conversation:
        if session_id not in self._sessions:
            raise RequestError.invalid_params({"sessionId": f"there is no session {session_id}"})
        return self._sessions[session_id]

    def _session_capabilities(self) -> SessionCapabilities:
        folders = SessionAdditionalDirectoriesCapabilities() if self._takes_all else None
        listed = SessionListCapabilities() if self._home is not None else None
        return SessionCapabilities(
            list=listed,
            resume=SessionResumeCapabilities() if self._home is not None else None,
            close=SessionCloseCapabilities(),
            additional_directories=folders,
        )

    async def _reopen(
        self, cwd: str, folders: list[str] | None, servers: list[Any] | None, session_id: str
    ) -> Conversation:
        """Open the earlier session with exactly this id; one that is open is closed first."""
        if self._home is None:
            raise RequestError.method_not_found("session/load")
        try:
            exact_session(self._home, session_id)
        except ToolrestError as error:
            raise RequestError.invalid_params({"sessionId": str(error)}) from error
        _check_folders(cwd, folders or ())
        before = self._sessions.get(session_id)
        if before is not None and before.running:
            raise RequestError.invalid_request({"sessionId": "a turn of this session is running"})
        await self.close_session(session_id)
        conversation = self._start(cwd, folders, servers, session_id)
        modes.restore(conversation)
        return conversation

    def _start(
        self, cwd: str, folders: list[str] | None, servers: list[Any] | None, resume: str | None
    ) -> Conversation:
        _check_folders(cwd, folders or ())
        channel = _FormChannel(self) if self._shows_forms else _Channel(self)
        try:
            conversation = self._open(
                SessionRequest(cwd, channel, folders or (), servers or (), resume)
            )
        except ToolrestError as error:
            raise RequestError.invalid_params({"message": str(error)}) from error
        channel.session_id = conversation.id
        self._sessions[conversation.id] = conversation
        open_control(conversation)
        return conversation

    async def _send_updates(
        self, session_id: str, updates: Updates, queue: asyncio.Queue[Any]
    ) -> None:
        """Send updates in order, until the editor is gone."""
        with contextlib.suppress(ConnectionError):
            while (event := await queue.get()) is not None:
                for update in updates.of(event):
                    await self._connected.session_update(session_id=session_id, update=update)

    async def _send(self, session_id: str, update: Any) -> None:
        with contextlib.suppress(ConnectionError):
            await self._connected.session_update(session_id=session_id, update=update)

    def _later(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(sending)
        self._soon.add(task)
        task.add_done_callback(self._soon.discard)

    async def ask_user(
        self, session_id: str, asked: UserQuestions
    ) -> dict[str, tuple[str, ...]] | None:
        """Ask a model's questions in a form of the editor; None when it is declined."""
        user_form.check(asked)
        mode = ElicitationFormSessionMode.model_validate(
            {
                "sessionId": session_id,
                "toolCallId": asked.call_id,
                "requestedSchema": user_form.schema(asked),
            }
        )
        given = await self._connected.create_elicitation(user_form.message(asked), mode)
        if not isinstance(given, AcceptElicitationResponse):
            return None
        return user_form.answers(asked, given.content)

    async def ask(self, session_id: str, request: ApprovalRequest) -> Review | None:
        """Ask for approval of a call as a choice in the editor; None when it cannot be shown."""
        if not can_show(request):
            return None
        options = permission.options(request)
        conversation = self._sessions.get(session_id)
        found = None if conversation is None else conversation.rest.find(request.tool)
        answer = await self._connected.request_permission(
            session_id=session_id,
            tool_call=permission.tool_call(request, None if found is None else found.icon),
            options=options,
        )
        return permission.review(answer.outcome, options)


class _Channel:
    """A session's approver: the user of the editor."""

    def __init__(self, agent: EditorAgent) -> None:
        self.agent = agent
        self.session_id = ""

    async def __call__(self, request: ApprovalRequest) -> Review | None:
        """Ask for approval of a call."""
        return await self.agent.ask(self.session_id, request)


class _FormChannel(_Channel):
    """The approver where the editor shows forms, which also answers a model's questions."""

    async def ask_user(self, asked: UserQuestions) -> dict[str, tuple[str, ...]] | None:
        """Ask a model's questions."""
        return await self.agent.ask_user(self.session_id, asked)


def _check_folders(cwd: str, more: Sequence[str]) -> None:
    for field, folders in (("cwd", (cwd,)), ("additionalDirectories", more)):
        for folder in folders:
            if not os.path.isabs(folder) or not os.path.isdir(folder):
                raise RequestError.invalid_params({field: f"{folder} is not an absolute folder"})


def _reason(result: TurnResult) -> Any:
    if result.status == "interrupted":
        return "cancelled"
    if result.status == "budget":
        return "max_turn_requests"
    return _STOPS[result.reason] if result.status == "failed" else "end_turn"


def _usage(result: TurnResult) -> Usage:
    used = result.usage
    return Usage(
        total_tokens=used.total,
        input_tokens=used.input,
        output_tokens=used.output,
        thought_tokens=used.reasoning_output,
        cached_read_tokens=used.cached_input,
        cached_write_tokens=used.cache_write_input,
    )
