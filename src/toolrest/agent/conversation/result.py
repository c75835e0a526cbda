"""What comes of a prompt, and who may listen in at its two ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolrest.agent.conversation.events import TurnStatus
from toolrest.items import JSONObject
from toolrest.records import dataclass, field
from toolrest.wire.model import Usage


@dataclass(slots=True)
class TurnEnd:
    """How a turn ended. `reason` is one word a program can act on, `error` says it in full."""

    status: TurnStatus = "completed"
    reason: str = "done"
    error: str | None = None
    text: str | None = None


@dataclass(slots=True)
class TurnResult:
    """What came of a prompt; `text` is the model's last message, whatever the status.

    `usage` counts the whole thread, `turns` (requests to the model) and `tool_calls` this turn.
    """

    status: TurnStatus
    reason: str
    text: str | None
    error: str | None
    usage: Usage
    denials: list[JSONObject] = field(default_factory=list)
    turns: int = 0
    tool_calls: int = 0


class SessionHooks(Protocol):
    """What may listen in at the two ends of a session's work."""

    async def session_start(self) -> Sequence[str]:
        """Before the first turn: texts that the model is told."""

    async def stop(self, text: str) -> str | None:
        """The model is done, with this answer: words that make it go on, or None."""
