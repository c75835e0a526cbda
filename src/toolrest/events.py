"""What happened, as typed values in one ordered stream per session.

The dispatch path emits these; the audit log, tracing, the terminal and `--json` output only
listen. Texts in events are already redacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from toolrest.items import JSONObject
from toolrest.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from toolrest.errors import FailureKind

Verdict = Literal["allow", "ask", "deny"]


@dataclass_transform(kw_only_default=True, eq_default=False)
class _Fields:
    """Fields are declared as in a dataclass and given by name; type checkers hold callers to it.

    Nothing is generated at import, and making one costs a third of what a dataclass's would: a
    call makes three.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__ = values  # the very dict that the call made: nothing is copied


class Event(_Fields):
    """Base: `seq` and `time` are set when the event is emitted, in order, per session."""

    type: ClassVar[str] = "event"
    suspect: ClassVar[tuple[str, ...]] = ()
    """Fields that may hold a secret when the event is made; empty means any of them."""
    seq: int = 0
    time: float = 0.0
    turn_id: str = ""

    def to_json(self) -> JSONObject:
        """A flat JSON object with the event's `type` first."""
        return {"type": self.type} | {name: _plain(getattr(self, name)) for name in self.names()}

    @classmethod
    def names(cls) -> list[str]:
        """Every field's name, the common ones first."""
        declared = [vars(base).get("__annotations__", {}) for base in reversed(cls.__mro__)]
        return [name for fields in declared for name in fields if name not in ("type", "suspect")]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.names())
        return f"{type(self).__name__}({shown})"


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


class TurnStarted(Event):
    """A turn has begun."""

    type: ClassVar[str] = "turn_started"


class TurnEnded(Event):
    """A turn is over; `reason` is `completed`, `aborted` or `failed`."""

    type: ClassVar[str] = "turn_ended"
    reason: Literal["completed", "aborted", "failed"] = "completed"


class ToolCallBegin(Event):
    """A call was routed and its arguments are valid, or it failed before that."""

    type: ClassVar[str] = "tool_call_begin"
    suspect: ClassVar[tuple[str, ...]] = ("call_id", "tool", "unknown_fields")
    call_id: str
    tool: str
    arguments: str
    unknown_fields: tuple[str, ...] = ()


class ToolCallDecision(Event):
    """What policy said about a call, and by which rule."""

    type: ClassVar[str] = "tool_call_decision"
    suspect: ClassVar[tuple[str, ...]] = ("call_id", "tool", "reason", "keys")
    call_id: str
    tool: str
    arguments: str
    verdict: Verdict
    rule: str
    risk: str
    source: Literal["policy", "user", "config", "hook"] = "policy"
    reason: str = ""
    keys: tuple[str, ...] = ()
    sandbox: str = "none"
    mutating: bool = False
    fingerprint: str = ""


class ToolCallDelta(Event):
    """A piece of output while the call still runs."""

    type: ClassVar[str] = "tool_call_delta"
    suspect: ClassVar[tuple[str, ...]] = ("call_id",)
    call_id: str
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


class ExecCommandOutputDelta(ToolCallDelta):
    """A piece of a command's output, while the call that started it still waits for it."""

    type: ClassVar[str] = "exec_command_output_delta"

    def to_json(self) -> JSONObject:
        """With the text's bytes in base64 as `chunk`, as clients of Codex expect it."""
        from base64 import b64encode

        raw = self.text.encode("utf-8", "surrogatepass")
        return {**super().to_json(), "chunk": b64encode(raw).decode()}


class ToolCallProgress(Event):
    """A tool says how far it has come."""

    type: ClassVar[str] = "tool_call_progress"
    call_id: str
    message: str
    fraction: float | None = None


class ToolCallEnd(Event):
    """The call has its one output. `bytes` counts the text before it was cut."""

    type: ClassVar[str] = "tool_call_end"
    suspect: ClassVar[tuple[str, ...]] = ("call_id", "tool", "fields", "files")
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
    files: Sequence[FileChange] = ()
    fields: tuple[str, ...] = ()


class ApprovalRequested(Event):
    """A call waits for somebody's yes or no."""

    type: ClassVar[str] = "approval_requested"
    call_id: str
    tool: str
    reason: str
    risk: str
    keys: tuple[str, ...] = ()


class ExecApprovalRequest(ApprovalRequested):
    """Somebody is asked about a command; the amendment is the rule that a yes may leave behind."""

    type: ClassVar[str] = "exec_approval_request"
    command: tuple[str, ...]
    cwd: str
    proposed_execpolicy_amendment: tuple[str, ...] | None
    parsed_cmd: tuple[JSONObject, ...] = ()


class ApplyPatchApprovalRequest(ApprovalRequested):
    """Somebody is asked about a patch; `changes` maps each path to what would become of it."""

    type: ClassVar[str] = "apply_patch_approval_request"
    changes: JSONObject
    grant_root: str | None = None


class ApprovalDeferred(Event):
    """A question waits under this id until somebody answers it or it expires."""

    type: ClassVar[str] = "approval_deferred"
    call_id: str
    approval_id: str
    tool: str
    reason: str
    expires: float


class RequestUserInput(Event):
    """The model asks the person something; `questions` hold no answers."""

    type: ClassVar[str] = "request_user_input"
    call_id: str
    questions: list[JSONObject]


class HookRan(Event):
    """A program of the user was run around a call, or at a session's start or end.

    `outcome` is what the hook itself came to, `effect` what that did to the call.
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


class ExecCommandBegin(Event):
    """A program is about to run, or (with a process id) has been started."""

    type: ClassVar[str] = "exec_command_begin"
    call_id: str
    command: tuple[str, ...]
    cwd: str
    parsed_cmd: tuple[JSONObject, ...] = ()
    process_id: str | None = None
    source: str = "agent"


class ExecCommandEnd(Event):
    """A program has ended, maybe long after its call; `exit_code` is -1 when it never ran.

    What comes out of a session is one stream: `stdout` has it all then.
    """

    type: ClassVar[str] = "exec_command_end"
    call_id: str
    command: tuple[str, ...]
    cwd: str
    parsed_cmd: tuple[JSONObject, ...] = ()
    stdout: str
    stderr: str
    aggregated_output: str
    exit_code: int
    duration: float
    formatted_output: str
    status: Literal["completed", "failed"] = "completed"
    process_id: str | None = None
    source: str = "agent"

    def to_json(self) -> JSONObject:
        """With the duration in whole seconds and nanoseconds, as clients of Codex expect it."""
        seconds, fraction = divmod(self.duration, 1)
        split = {"secs": int(seconds), "nanos": int(fraction * 1e9)}
        return {**super().to_json(), "duration": split}


class TerminalInteraction(Event):
    """Something was typed into a running command, or it was asked how it goes."""

    type: ClassVar[str] = "terminal_interaction"
    call_id: str
    process_id: str
    stdin: str


class ConnectionBlocked(Event):
    """A command wanted to reach a host that is not on the allow list."""

    type: ClassVar[str] = "connection_blocked"
    host: str
    port: int
    protocol: str


class PatchApplyBegin(Event):
    """A patch is about to be written; `changes` maps each path to what becomes of it."""

    type: ClassVar[str] = "patch_apply_begin"
    call_id: str
    auto_approved: bool
    changes: JSONObject


class PatchApplyEnd(Event):
    """A patch was written as a whole, or nothing was."""

    type: ClassVar[str] = "patch_apply_end"
    call_id: str
    stdout: str
    stderr: str
    success: bool
    changes: JSONObject


class TurnDiff(Event):
    """What the turn has changed so far, as one diff in git's layout."""

    type: ClassVar[str] = "turn_diff"
    unified_diff: str


class ViewImageToolCall(Event):
    """The model looked at an image."""

    type: ClassVar[str] = "view_image_tool_call"
    call_id: str
    path: str


class FilesChanged(Event):
    """What the calls of a turn changed, commands included, seen from its checkpoint."""

    type: ClassVar[str] = "files_changed"
    suspect: ClassVar[tuple[str, ...]] = ("files",)
    checkpoint: int
    files: Sequence[FileChange] = ()
    files_in_all: int = 0


class McpToolCallBegin(Event):
    """A call goes to another server; `invocation` has its server, tool and arguments."""

    type: ClassVar[str] = "mcp_tool_call_begin"
    call_id: str
    invocation: JSONObject


class McpToolCallEnd(Event):
    """Another server has answered, or not: `result` is `{"Ok": result}` or `{"Err": words}`."""

    type: ClassVar[str] = "mcp_tool_call_end"
    call_id: str
    invocation: JSONObject
    duration: float
    result: JSONObject


class McpServerState(Event):
    """An MCP server is starting, ready, degraded or failed; `reason` says why."""

    type: ClassVar[str] = "mcp_startup_update"
    server: str
    state: str
    reason: str = ""


class DynamicToolCallRequest(Event):
    """The client is asked to run one of its own tools; `Toolrest.respond` answers."""

    type: ClassVar[str] = "dynamic_tool_call_request"
    call_id: str
    tool: str
    arguments: Any


class MemorySaved(Event):
    """A note was added to what later sessions can read; for the user to see."""

    type: ClassVar[str] = "memory_saved"
    call_id: str
    scope: str
    path: str
    text: str


class WebSearchBegin(Event):
    """A web search is about to be asked."""

    type: ClassVar[str] = "web_search_begin"
    call_id: str


class WebSearchEnd(Event):
    """A web search was answered."""

    type: ClassVar[str] = "web_search_end"
    call_id: str
    query: str
    action: JSONObject


class PlanUpdate(Event):
    """The model wrote down its plan."""

    type: ClassVar[str] = "plan_update"
    explanation: str | None
    plan: list[JSONObject]


class Warning(Event):
    """Something a person should know; nothing failed."""

    type: ClassVar[str] = "warning"
    message: str


class Custom(Event):
    """A tool's own event."""

    type: ClassVar[str] = "custom"
    call_id: str
    name: str
    data: Any = None
