"""The result of a turn, its denials, and the hooks at a session's start and end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from toolrest.agent.conversation.events import TurnStatus
from toolrest.answer import Answer
from toolrest.errors import ToolrestError
from toolrest.events import Event, ToolCallDecision, ToolCallEnd
from toolrest.items import JSONObject
from toolrest.wire.model import Usage

if TYPE_CHECKING:
    # At run time a plain TypeVar does.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from toolrest.gate.approval.pending import PendingApproval

    Output = TypeVarWithDefault("Output", default=Any)
else:
    Output = TypeVar("Output")


class TurnEnd(Struct):
    """The end of a turn. `reason` is one word for programs, `error` the message."""

    status: TurnStatus = "completed"
    reason: str = "done"
    error: str | None = None
    text: str | None = None


def end_of(task: asyncio.Task[TurnEnd]) -> TurnEnd:
    """The end of a turn's task; one that is cancelled before its first step has no result."""
    reason = "the turn was stopped before it began"
    return TurnEnd("interrupted", "interrupted", reason) if task.cancelled() else task.result()


class TurnResult(Struct, Generic[Output]):
    """The result of a turn; `text` is the model's last message, whatever the status.

    `usage`, `turns` (requests to the model) and `tool_calls` count this turn; the whole session's
    tokens are `session.usage`.
    """

    status: TurnStatus
    reason: str
    text: str | None
    error: str | None
    usage: Usage
    denials: list[JSONObject] = field(default_factory=list)
    turns: int = 0
    tool_calls: int = 0
    pending: list[PendingApproval] = field(default_factory=list)
    """The approvals that a turn with the status `pending` waits for."""
    session_id: str = ""
    """The session's id, for resuming it."""
    _output: Any = None

    @property
    def output(self) -> Output:
        """The answer as `output_type`; ToolrestError while an approval is pending."""
        if self.status != "completed":
            raise ToolrestError(f"the turn has no output: it is {self.status} ({self.reason})")
        output: Output = self._output
        return output


class AgentError(ToolrestError):
    """A run without an answer: the model failed, a limit was reached, or it was stopped.

    `result` has the status, the reason as one word, the text so far and the usage.
    """

    def __init__(self, result: TurnResult[Any], message: str) -> None:
        super().__init__(message)
        self.result = result


class SessionHooks(Protocol):
    """The hooks at the start of a session and at the end of a turn."""

    async def session_start(self) -> Sequence[str]:
        """Run before the first turn; returns texts for the model."""

    async def stop(self, text: str) -> str | None:
        """Run when the model is done; returns a message that makes it go on, or None."""


_NOT_A_DENIAL = frozenset({"input_invalid", "tool_not_found", "execution_failed", "aborted"})


class Denials:
    """A listener that keeps one record for each call that was denied."""

    def __init__(self) -> None:
        self._found: dict[str, JSONObject] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, ToolCallDecision):
            if event.verdict == Answer.DENY and event.rule not in _NOT_A_DENIAL:
                self._note(event.call_id, event.tool, event.rule, event.reason)
        elif isinstance(event, ToolCallEnd) and event.failure == "sandbox_denied":
            self._note(event.call_id, event.tool, "sandbox", event.said or _last_line(event.output))

    def _note(self, call_id: str, tool: str, rule: str, reason: str) -> None:
        self._found[call_id] = {"call_id": call_id, "tool": tool, "rule": rule, "reason": reason}

    def to_json(self) -> list[JSONObject]:
        """The denied calls, in order."""
        return list(self._found.values())


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
