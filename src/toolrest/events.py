"""What happened, as typed values in one ordered stream per session.

The dispatch path emits these; the audit log, tracing, the terminal and `--json` output only
listen. Texts in events are already redacted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from toolrest.errors import FailureKind
from toolrest.items import JSONObject

Verdict = Literal["allow", "ask", "deny"]


@dataclass(slots=True, kw_only=True)
class Event:
    """Base: `seq` and `time` are set when the event is emitted, in order, per session."""

    type: ClassVar[str] = "event"
    seq: int = 0
    time: float = 0.0
    turn_id: str = ""

    def to_json(self) -> JSONObject:
        """A flat JSON object with the event's `type` first."""
        return {"type": self.type} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, FileChange):
        return {"path": value.path, "before": value.before, "after": value.after}
    return value


@dataclass(slots=True)
class FileChange:
    """A declared write: SHA-256 of the content before and after; None where there was no file."""

    path: str
    before: str | None
    after: str | None


@dataclass(slots=True, kw_only=True)
class TurnStarted(Event):
    """A turn has begun."""

    type: ClassVar[str] = "turn_started"


@dataclass(slots=True, kw_only=True)
class TurnEnded(Event):
    """A turn is over; `reason` is `completed`, `aborted` or `failed`."""

    type: ClassVar[str] = "turn_ended"
    reason: Literal["completed", "aborted", "failed"] = "completed"


@dataclass(slots=True, kw_only=True)
class ToolCallBegin(Event):
    """A call was routed and its arguments are valid, or it failed before that."""

    type: ClassVar[str] = "tool_call_begin"
    call_id: str
    tool: str
    arguments: str
    unknown_fields: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class ToolCallDecision(Event):
    """What policy said about a call, and by which rule."""

    type: ClassVar[str] = "tool_call_decision"
    call_id: str
    tool: str
    arguments: str
    verdict: Verdict
    rule: str
    risk: str
    source: Literal["policy", "user", "config"] = "policy"
    reason: str = ""
    keys: tuple[str, ...] = ()
    sandbox: str = "none"
    mutating: bool = False
    fingerprint: str = ""


@dataclass(slots=True, kw_only=True)
class ToolCallDelta(Event):
    """A piece of output while the call still runs."""

    type: ClassVar[str] = "tool_call_delta"
    call_id: str
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


@dataclass(slots=True, kw_only=True)
class ToolCallProgress(Event):
    """A tool says how far it has come."""

    type: ClassVar[str] = "tool_call_progress"
    call_id: str
    message: str
    fraction: float | None = None


@dataclass(slots=True, kw_only=True)
class ToolCallEnd(Event):
    """The call has its one output. `bytes` counts the text before it was cut."""

    type: ClassVar[str] = "tool_call_end"
    call_id: str
    tool: str
    success: bool | None
    failure: FailureKind | None
    duration: float
    bytes: int
    output: str
    truncated: bool = False
    spill: str | None = None
    exit_code: int | None = None
    sandbox: str = "none"
    files: list[FileChange] = field(default_factory=list)
    fields: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class ApprovalRequested(Event):
    """A call waits for somebody's yes or no."""

    type: ClassVar[str] = "approval_requested"
    call_id: str
    tool: str
    reason: str
    risk: str
    keys: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class PlanUpdate(Event):
    """The model wrote down its plan."""

    type: ClassVar[str] = "plan_update"
    explanation: str | None
    plan: list[JSONObject]


@dataclass(slots=True, kw_only=True)
class Warning(Event):
    """Something a person should know; nothing failed."""

    type: ClassVar[str] = "warning"
    message: str


@dataclass(slots=True, kw_only=True)
class Custom(Event):
    """A tool's own event."""

    type: ClassVar[str] = "custom"
    call_id: str
    name: str
    data: Any = None
