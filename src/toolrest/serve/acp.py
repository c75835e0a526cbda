"""The Agent Client Protocol over standard input and output: the agent inside an editor.

The editor opens sessions and sends prompts; it shows our events, and asks its user for our
approvals. Commands run in our sandbox, not in the editor's
terminals: their output comes as content of the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from acp.exceptions import RequestError
from acp.helpers import update_agent_message_text, update_user_message_text
from acp.schema import (
    AcceptElicitationResponse,
    AgentCapabilities,
    AllowedOutcome,
    CloseSessionResponse,
    ElicitationFormSessionMode,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    ToolCallUpdate,
)
from msgspec import Struct

from toolrest import __version__
from toolrest.agent.history.history import is_user_turn, message, message_text
from toolrest.errors import ToolrestError
from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.items import JSONObject
from toolrest.policy.terminal_safe import display_safe
from toolrest.serve import user_form
from toolrest.serve.acp_updates import Updates
from toolrest.serve.elicit import can_show, once

if TYPE_CHECKING:
    from acp.interfaces import Client

    from toolrest.agent.conversation.result import TurnResult
    from toolrest.agent.conversation.session import AgentSession
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.gate.approval.user_questions import UserQuestions

VERSION = 1
_TITLE = 2000


class SessionRequest(Struct):
    """The request for a session: its folders and servers, the approver, the session to resume."""

    cwd: str
    on_ask: OnAsk
    folders: Sequence[str] = ()
    servers: Sequence[Any] = ()
    resume: str | None = None


Open = Callable[[SessionRequest], "AgentSession"]


class EditorAgent:
    """Answers one editor. `open_session` makes a session for a folder, or opens an earlier one."""

    def __init__(self, open_session: Open) -> None:
        self._open = open_session
        self._sessions: dict[str, AgentSession] = {}
        self._client: Client | None = None
        self._shows_forms = False

    def on_connect(self, conn: Client) -> None:
        """Take the editor's connection."""
        self._client = conn

    async def aclose(self) -> None:
        """End every session."""
        for session in list(self._sessions.values()):
            await session.aclose()
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
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
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
        session = self._start(cwd, additional_directories, mcp_servers, None)
        return NewSessionResponse(session_id=session.thread_id)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> Any:
        """Open an earlier session and show its messages."""
        session = self._start(cwd, additional_directories, mcp_servers, session_id)
        for update in _replayed(session):
            await self._connected.session_update(session_id=session_id, update=update)
        return LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        """Run one turn, sending updates to the editor."""
        session = self._session(session_id)
        updates = Updates(session.rest.gate.services.files.cwd)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        stop = session.rest.subscribe(queue.put_nowait)
        sending = asyncio.ensure_future(self._send_updates(session_id, updates, queue))
        try:
            result = await session.run([_message(prompt)])
        finally:
            stop()
            queue.put_nowait(None)
            await sending
        if result.status == "failed":
            await self._send_text(session_id, f"\n{result.error or result.reason}\n")
        return PromptResponse(stop_reason=_reason(result))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the running turn."""
        session = self._sessions.get(session_id)
        if session is not None:
            await session.interrupt()

    async def close_session(self, session_id: str, **_: Any) -> Any:
        """End a session."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.aclose()
        return CloseSessionResponse()

    # How

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise RuntimeError("no editor is connected")
        return self._client

    def _session(self, session_id: str) -> AgentSession:
        if session_id not in self._sessions:
            raise RequestError.invalid_params({"sessionId": f"there is no session {session_id}"})
        return self._sessions[session_id]

    def _start(
        self, cwd: str, folders: list[str] | None, servers: list[Any] | None, resume: str | None
    ) -> AgentSession:
        if not os.path.isabs(cwd) or not os.path.isdir(cwd):
            raise RequestError.invalid_params({"cwd": f"{cwd} is not an absolute folder"})
        channel = _FormChannel(self) if self._shows_forms else _Channel(self)
        try:
            session = self._open(SessionRequest(cwd, channel, folders or (), servers or (), resume))
        except ToolrestError as error:
            raise RequestError.invalid_params({"message": str(error)}) from error
        channel.session_id = session.thread_id
        self._sessions[session.thread_id] = session
        return session

    async def _send_updates(
        self, session_id: str, updates: Updates, queue: asyncio.Queue[Any]
    ) -> None:
        """Send updates in order, until the editor is gone."""
        with contextlib.suppress(ConnectionError):
            while (event := await queue.get()) is not None:
                for update in updates.of(event):
                    await self._connected.session_update(session_id=session_id, update=update)

    async def _send_text(self, session_id: str, text: str) -> None:
        with contextlib.suppress(ConnectionError):
            await self._connected.session_update(
                session_id=session_id, update=update_agent_message_text(text)
            )

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
        options = [
            PermissionOption(
                option_id="approved",
                name=display_safe(once(request, "Run this once")),
                kind="allow_once",
            ),
            *(
                PermissionOption(
                    option_id=choice.answer,
                    name=display_safe(choice.sentence),
                    kind="allow_always",
                )
                for choice in request.choices
                if choice.scope != "once"
            ),
            PermissionOption(option_id="denied", name="Do not run it", kind="reject_once"),
            PermissionOption(option_id="abort", name="Do not run it, and stop", kind="reject_once"),
        ]
        title = display_safe(f"{request.tool}: {' '.join(request.command) or request.arguments}")
        shown = ToolCallUpdate(
            tool_call_id=request.call_id,
            title=title if len(title) <= _TITLE else f"{title[:_TITLE]} … (not all of it)",
            status="pending",
            raw_input={
                "arguments": display_safe(request.arguments),
                "changes": display_safe(request.diff, keep_newlines=True),
                "because": display_safe(request.retry_reason or request.reason),
                "risk": request.risk.label,
                "folder": request.cwd,
                "outside the sandbox": request.leaves,
            },
        )
        answer = await self._connected.request_permission(
            session_id=session_id, tool_call=shown, options=options
        )
        if not isinstance(answer.outcome, AllowedOutcome):
            return Review("abort")
        offered = {option.option_id for option in options}
        chosen: Any = answer.outcome.option_id
        return Review(chosen) if chosen in offered else Review("denied")


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


def _reason(result: TurnResult) -> Any:
    if result.status == "interrupted":
        return "cancelled"
    if result.status == "budget":
        return "max_turn_requests"
    return "refusal" if result.status == "failed" else "end_turn"


def _message(blocks: list[Any]) -> JSONObject:
    return message("user", *(part for part in map(_part, blocks) if part))


def _part(block: Any) -> str | JSONObject:
    """One block of a prompt; the text of a file is marked as such."""
    kind = getattr(block, "type", "")
    if kind == "text":
        return str(block.text)
    if kind == "image":
        return {"type": "input_image", "image_url": f"data:{block.mime_type};base64,{block.data}"}
    if kind == "resource_link":
        return f"[{block.name}]({block.uri})"
    if kind == "resource":
        text = getattr(block.resource, "text", None)
        body = text if text is not None else "(not text)"
        return f'<file uri="{block.resource.uri}">\n{body}\n</file>'
    return f"({kind or 'something'} that this agent cannot take)"


def _replayed(session: AgentSession) -> list[Any]:
    shown: list[Any] = []
    for item in session.history.items:
        if item.get("type") != "message":
            continue
        if is_user_turn(item):
            shown.append(update_user_message_text(message_text(item)))
        elif item.get("role") == "assistant":
            shown.append(update_agent_message_text(message_text(item)))
    return shown
