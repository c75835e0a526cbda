"""Events of single tools: commands, patches, searches, MCP servers, the plan."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from toolrest.events import Event, FileChange, ToolCallDelta
from toolrest.items import JSONObject


class ExecCommandOutputDelta(ToolCallDelta, kw_only=True):
    """A piece of a command's output, while the call that started it still waits for it."""

    type: ClassVar[str] = "exec_command_output_delta"

    def to_json(self) -> JSONObject:
        """The event with the text's bytes in base64 as `chunk`, as clients of Codex expect."""
        raw = self.text.encode("utf-8", "surrogatepass")
        return {**super().to_json(), "chunk": b64encode(raw).decode()}


class ExecCommandBegin(Event, kw_only=True):
    """A program is about to run, or (with a process id) has been started.

    `withheld` has the names of the variables that it is not given.
    """

    type: ClassVar[str] = "exec_command_begin"
    call_id: str
    command: tuple[str, ...]
    cwd: str
    parsed_cmd: tuple[JSONObject, ...] = ()
    process_id: str | None = None
    source: str = "agent"
    withheld: tuple[str, ...] = ()


class ExecCommandEnd(Event, kw_only=True):
    """A program has ended, maybe long after its call; `exit_code` is -1 when it never ran.

    The output of a command session is one stream, all of it in `stdout`.
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
    withheld: tuple[str, ...] = ()

    def to_json(self) -> JSONObject:
        """The event with the duration in seconds and nanoseconds, as clients of Codex expect."""
        seconds, fraction = divmod(self.duration, 1)
        split = {"secs": int(seconds), "nanos": int(fraction * 1e9)}
        return {**super().to_json(), "duration": split}


class TerminalInteraction(Event, kw_only=True):
    """A running command was typed into, or polled."""

    type: ClassVar[str] = "terminal_interaction"
    call_id: str
    process_id: str
    stdin: str


class ConnectionBlocked(Event, kw_only=True):
    """The sandbox blocked a connection to a host that is not on the allow list."""

    type: ClassVar[str] = "connection_blocked"
    host: str
    port: int
    protocol: str


class WeakSandbox(Event, kw_only=True):
    """The session's sandbox does not lock protected names; emitted once, before a command runs.

    `message` is for the person: a sentence, or two words where that was said or accepted before.
    """

    type: ClassVar[str] = "weak_sandbox"
    message: str


class PatchApplyBegin(Event, kw_only=True):
    """A patch is about to be written; `changes` maps each path to its change."""

    type: ClassVar[str] = "patch_apply_begin"
    call_id: str
    auto_approved: bool
    changes: JSONObject


class PatchApplyEnd(Event, kw_only=True):
    """A patch was written as a whole, or nothing was."""

    type: ClassVar[str] = "patch_apply_end"
    call_id: str
    stdout: str
    stderr: str
    success: bool
    changes: JSONObject


class TurnDiff(Event, kw_only=True):
    """The diff of the turn so far, in git's layout."""

    type: ClassVar[str] = "turn_diff"
    unified_diff: str


class ViewImageToolCall(Event, kw_only=True):
    """The model looked at an image."""

    type: ClassVar[str] = "view_image_tool_call"
    call_id: str
    path: str


class FilesChanged(Event, kw_only=True):
    """The files that a turn changed since its checkpoint, by commands included."""

    type: ClassVar[str] = "files_changed"
    suspect: ClassVar[tuple[str, ...]] = ("files",)
    checkpoint: int
    files: Sequence[FileChange] = ()
    files_in_all: int = 0


class PutBack(Event, kw_only=True):
    """What a program of ours did to a protected name was put back, or could not be.

    `change` is what it had done, `failure` why it stays. `undo` brings back what was put back.
    """

    type: ClassVar[str] = "put_back"
    suspect: ClassVar[tuple[str, ...]] = ("path",)
    path: str
    change: Literal["made", "changed", "removed"]
    by: str
    failure: str = ""

    @property
    def message(self) -> str:
        """The event in one line, for people and models."""
        if self.failure:
            return f"Changed, cannot be put back: {self.path} ({self.failure})"
        return f"Put back: {self.path} ({self.by} had {self.change} it)"


class McpToolCallBegin(Event, kw_only=True):
    """A call goes to an MCP server; `invocation` has its server, tool and arguments."""

    type: ClassVar[str] = "mcp_tool_call_begin"
    call_id: str
    invocation: JSONObject


class McpToolCallEnd(Event, kw_only=True):
    """A call to an MCP server ended: `result` is `{"Ok": result}` or `{"Err": message}`."""

    type: ClassVar[str] = "mcp_tool_call_end"
    call_id: str
    invocation: JSONObject
    duration: float
    result: JSONObject


class McpServerState(Event, kw_only=True):
    """An MCP server is starting, ready, degraded or failed; `reason` is the cause."""

    type: ClassVar[str] = "mcp_startup_update"
    server: str
    state: str
    reason: str = ""


class DynamicToolCallRequest(Event, kw_only=True):
    """The client is asked to run one of its own tools; `Toolrest.respond` answers."""

    type: ClassVar[str] = "dynamic_tool_call_request"
    call_id: str
    tool: str
    arguments: Any


class MemorySaved(Event, kw_only=True):
    """A note was saved to the memory that later sessions read."""

    type: ClassVar[str] = "memory_saved"
    call_id: str
    scope: str
    path: str
    text: str


class WebSearchBegin(Event, kw_only=True):
    """A web search is about to start."""

    type: ClassVar[str] = "web_search_begin"
    call_id: str


class WebSearchEnd(Event, kw_only=True):
    """A web search has its results."""

    type: ClassVar[str] = "web_search_end"
    call_id: str
    query: str
    action: JSONObject


class PlanUpdate(Event, kw_only=True):
    """The model updated its plan."""

    type: ClassVar[str] = "plan_update"
    explanation: str | None
    plan: list[JSONObject]
