"""Events: what happened, as typed values in one ordered stream per session.

The dispatch path emits these; the audit log, tracing, the terminal and `--json` output only
listen. Texts in events are already redacted. Events that every call can
emit are here; those of single tools are in `tool_events`, importable from here as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.items import JSONObject

if TYPE_CHECKING:
    from toolrest.errors import FailureKind
    from toolrest.events.tool_events import ConnectionBlocked as ConnectionBlocked
    from toolrest.events.tool_events import DynamicToolCallRequest as DynamicToolCallRequest
    from toolrest.events.tool_events import ExecCommandBegin as ExecCommandBegin
    from toolrest.events.tool_events import ExecCommandEnd as ExecCommandEnd
    from toolrest.events.tool_events import ExecCommandOutputDelta as ExecCommandOutputDelta
    from toolrest.events.tool_events import FilesChanged as FilesChanged
    from toolrest.events.tool_events import McpServerState as McpServerState
    from toolrest.events.tool_events import McpToolCallBegin as McpToolCallBegin
    from toolrest.events.tool_events import McpToolCallEnd as McpToolCallEnd
    from toolrest.events.tool_events import MemorySaved as MemorySaved
    from toolrest.events.tool_events import PatchApplyBegin as PatchApplyBegin
    from toolrest.events.tool_events import PatchApplyEnd as PatchApplyEnd
    from toolrest.events.tool_events import PlanUpdate as PlanUpdate
    from toolrest.events.tool_events import PutBack as PutBack
    from toolrest.events.tool_events import TerminalInteraction as TerminalInteraction
    from toolrest.events.tool_events import TurnDiff as TurnDiff
    from toolrest.events.tool_events import ViewImageToolCall as ViewImageToolCall
    from toolrest.events.tool_events import WeakSandbox as WeakSandbox
    from toolrest.events.tool_events import WebSearchBegin as WebSearchBegin
    from toolrest.events.tool_events import WebSearchEnd as WebSearchEnd


class Event(Struct, kw_only=True, eq=False):
    """Base: `seq` and `time` are set when the event is emitted, in order, per session."""

    type: ClassVar[str] = "event"
    suspect: ClassVar[tuple[str, ...]] = ()
    """Fields that may hold a secret when the event is made; empty means any of them."""
    seq: int = 0
    time: float = 0.0
    turn_id: str = ""

    def to_json(self) -> JSONObject:
        """A flat JSON object with the event's `type` first."""
        values = {name: _plain(getattr(self, name)) for name in self.__struct_fields__}
        return {"type": self.type} | values


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, FileChange):
        return {"path": value.path, "before": value.before, "after": value.after}
    return value


class FileChange(Struct):
    """A declared write: SHA-256 of the content before and after; None where there was no file."""

    path: str
    before: str | None
    after: str | None


class TurnStarted(Event, kw_only=True):
    """A turn has begun."""

    type: ClassVar[str] = "turn_started"


class TurnEnded(Event, kw_only=True):
    """A turn is over; `reason` is `completed`, `aborted` or `failed`."""

    type: ClassVar[str] = "turn_ended"
    reason: Literal["completed", "aborted", "failed"] = "completed"


class ToolCallBegin(Event, kw_only=True):
    """A call was routed and its arguments are valid, or it failed before that."""

    type: ClassVar[str] = "tool_call_begin"
    suspect: ClassVar[tuple[str, ...]] = ("call_id", "tool", "unknown_fields")
    call_id: str
    tool: str
    arguments: str
    unknown_fields: tuple[str, ...] = ()
    icon: str = "other"
    exec_item: str = ""
    """`Tool.icon` and `Tool.exec_item`, for subscribers that show calls and know no tools."""


class ToolCallDecision(Event, kw_only=True):
    """The policy's decision on a call, and its rule."""

    type: ClassVar[str] = "tool_call_decision"
    suspect: ClassVar[tuple[str, ...]] = ("call_id", "tool", "reason", "said", "keys", "writes")
    call_id: str
    tool: str
    arguments: str
    verdict: Answer
    rule: str
    risk: str
    source: str = "policy"
    """`policy`, `user`, `hook`, or the setting that answered in a person's place."""
    reason: str = ""
    said: str = ""
    """The reason in the words for people, where theirs are others."""
    keys: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Of a denied call: the paths that it is known to write."""
    sandbox: str = "none"
    mutating: bool = False
    fingerprint: str = ""


class ToolCallDelta(Event, kw_only=True):
    """A piece of output while the call still runs."""

    type: ClassVar[str] = "tool_call_delta"
    suspect: ClassVar[tuple[str, ...]] = ("call_id",)
    call_id: str
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


class ToolCallProgress(Event, kw_only=True):
    """The progress of a call that still runs."""

    type: ClassVar[str] = "tool_call_progress"
    call_id: str
    message: str
    fraction: float | None = None


class ToolCallEnd(Event, kw_only=True):
    """The call has its one output. `bytes` counts the text before it was cut."""

    type: ClassVar[str] = "tool_call_end"
    suspect: ClassVar[tuple[str, ...]] = ("call_id", "tool", "said", "fields", "files")
    call_id: str
    tool: str
    success: bool | None
    failure: FailureKind | None
    duration: float
    bytes: int
    output: str
    said: str = ""
    """Why it failed, in the words for people, where theirs are others than the output's."""
    truncated: bool = False
    spill: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    """The signal that ended a command."""
    sandbox: str = "none"
    files: Sequence[FileChange] = ()
    fields: tuple[str, ...] = ()


class ApprovalRequested(Event, kw_only=True):
    """A call waits for approval."""

    type: ClassVar[str] = "approval_requested"
    call_id: str
    tool: str
    reason: str
    risk: str
    keys: tuple[str, ...] = ()


class ExecApprovalRequest(ApprovalRequested, kw_only=True):
    """A command waits for approval; the amendment is the rule that approving it may store."""

    type: ClassVar[str] = "exec_approval_request"
    command: tuple[str, ...]
    cwd: str
    proposed_execpolicy_amendment: tuple[str, ...] | None
    parsed_cmd: tuple[JSONObject, ...] = ()


class ApplyPatchApprovalRequest(ApprovalRequested, kw_only=True):
    """A patch waits for approval; `changes` maps each path to its change."""

    type: ClassVar[str] = "apply_patch_approval_request"
    changes: JSONObject
    grant_root: str | None = None


class ApprovalDeferred(Event, kw_only=True):
    """A pending approval waits under this id until it is answered or expires."""

    type: ClassVar[str] = "approval_deferred"
    call_id: str
    approval_id: str
    tool: str
    reason: str
    expires: float


class AnsweredElsewhere(Event, kw_only=True):
    """An approval or question was answered in another front end than the session's own."""

    type: ClassVar[str] = "answered_elsewhere"
    call_id: str
    answer: str
    note: str = ""


class RequestUserInput(Event, kw_only=True):
    """The model asks the user questions; `questions` hold no answers."""

    type: ClassVar[str] = "request_user_input"
    call_id: str
    questions: list[JSONObject]


class HookRan(Event, kw_only=True):
    """A program of the user was run around a call, or at a session's start or end.

    `outcome` is the hook's own result, `effect` what that did to the call.
    """

    type: ClassVar[str] = "hook_ran"
    call_id: str
    event: str
    command: tuple[str, ...]
    outcome: Literal["continue", "allow", "ask", "deny", "changed", "error"]
    effect: Literal["continue", "allow", "ask", "deny"]
    reason: str = ""
    exit_code: int | None = None
    duration: float = 0.0


class Warning(Event, kw_only=True):
    """A warning to the user; nothing failed."""

    type: ClassVar[str] = "warning"
    message: str


class Custom(Event, kw_only=True):
    """A tool's own event."""

    type: ClassVar[str] = "custom"
    call_id: str
    name: str
    data: Any = None


if not TYPE_CHECKING:  # so that an unknown name stays an error to type checkers

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = globals()[name] = getattr(import_module("toolrest.events.tool_events"), name)
        return found
