"""Events of a turn beside the tool calls, on the same ordered stream as theirs."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from toolrest.events import Event
from toolrest.items import JSONObject

TurnStatus: TypeAlias = Literal["completed", "pending", "failed", "interrupted", "budget"]


class UserMessage(Event, kw_only=True):
    """A user's message to the model."""

    type: ClassVar[str] = "user_message"
    message: str


class AgentMessage(Event, kw_only=True):
    """A whole message of the model."""

    type: ClassVar[str] = "agent_message"
    message: str


class AgentMessageDelta(Event, kw_only=True):
    """A piece of a message that the model is writing."""

    type: ClassVar[str] = "agent_message_content_delta"
    delta: str


class AgentReasoning(Event, kw_only=True):
    """The summary of the model's reasoning."""

    type: ClassVar[str] = "agent_reasoning"
    text: str


class AgentReasoningRaw(Event, kw_only=True):
    """The model's raw reasoning; only with `show_raw_agent_reasoning`."""

    type: ClassVar[str] = "agent_reasoning_raw_content"
    text: str


class AgentReasoningDelta(Event, kw_only=True):
    """A piece of reasoning; `raw` when it is not of the summary."""

    type: ClassVar[str] = "reasoning_content_delta"
    delta: str
    raw: bool = False


class ArgumentsPreview(Event, kw_only=True):
    """A piece of a call's arguments, to show and never to act on."""

    type: ClassVar[str] = "tool_call_arguments_delta"
    call_id: str
    tool: str
    delta: str


class TokenCount(Event, kw_only=True):
    """The tokens that the conversation has used so far, and the context window."""

    type: ClassVar[str] = "token_count"
    total: JSONObject
    last: JSONObject
    model_context_window: int | None = None
    cost: float | None = None
    """Dollars; None where a price is not known."""


class StreamError(Event, kw_only=True):
    """A request to the model failed and is sent again, after so many `seconds`.

    `kind` is that of the error, `reason` its message; `message` says it all as Codex does.
    """

    type: ClassVar[str] = "stream_error"
    message: str
    kind: str = ""
    reason: str = ""
    seconds: float = 0.0
    attempt: int = 0
    most: int = 0


def stream_error(kind: str, reason: str, *, seconds: float, attempt: int, most: int) -> StreamError:
    """The event before a request is sent again."""
    return StreamError(
        message=f"Reconnecting... {attempt}/{most} ({reason})",
        kind=kind,
        reason=reason,
        seconds=seconds,
        attempt=attempt,
        most=most,
    )


class ContextCompacted(Event, kw_only=True):
    """The conversation was too long; a summary has taken its place."""

    type: ClassVar[str] = "context_compacted"
    tokens_before: int
    tokens_after: int


class TaskComplete(Event, kw_only=True):
    """A turn of the agent is over. `usage` counts this turn alone."""

    type: ClassVar[str] = "task_complete"
    status: TurnStatus
    reason: str
    last_agent_message: str | None
    error: str | None
    usage: JSONObject
    cost: float | None = None
    """Dollars for this turn; None where a price is not known."""
