"""The session's events in the format of `codex exec --json`, one JSON object a line.

A parser of that format reads these lines unchanged; what Toolrest adds is one field of the
first line (`schema_version`) and one last line (`result`), see docs/exec-events.schema.json.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from toolrest.agent.conversation.events import (
    AgentMessage,
    AgentMessageDelta,
    AgentReasoning,
    AgentReasoningDelta,
    AgentReasoningRaw,
    ArgumentsPreview,
    StreamError,
    TaskComplete,
    UserMessage,
)
from toolrest.agent.reports.exec_json_items import CallItems
from toolrest.events import (
    Event,
    ExecCommandBegin,
    PatchApplyBegin,
    PatchApplyEnd,
    PlanUpdate,
    PutBack,
    ToolCallBegin,
    TurnStarted,
    Warning,  # noqa: A004 - the event
)
from toolrest.items import JSONObject

SCHEMA_VERSION = 1
Write = Callable[[JSONObject], None]


class ThreadEvents:
    """A listener that writes the lines. Items are numbered over the whole run."""

    def __init__(self, write: Write) -> None:
        self._put = write
        self._first: JSONObject | None = None
        self._held: list[JSONObject] = []
        self._count = 0
        self._plan: JSONObject | None = None
        self._patches: dict[str, JSONObject] = {}
        self._calls = CallItems(self._new, self._write_item)

    # The frame

    def thread_started(
        self, thread_id: str, *, untrusted_folder: bool = False, weak_sandbox: bool | None = False
    ) -> None:
        """Prepare the first line: it and all others wait until the journal has the prompt."""
        line = {"type": "thread.started", "thread_id": thread_id, "schema_version": SCHEMA_VERSION}
        self._first = line | {"untrusted_folder": untrusted_folder, "weak_sandbox": weak_sandbox}

    def error(self, message: str) -> None:
        """Write an error that belongs to no item; before the first line, in its place."""
        error = {"type": "error", "message": message}
        if self._first is not None:
            self._begin(error)
        else:
            self._write(error)

    def _write(self, line: JSONObject) -> None:
        if self._first is not None:
            self._held.append(line)
        else:
            self._put(line)

    def _begin(self, first: JSONObject) -> None:
        """Write the first line and those that waited."""
        lines, self._first, self._held = [first, *self._held], None, []
        for line in lines:
            self._put(line)

    def result(
        self,
        status: str,
        reason: str,
        exit_code: int,
        usage: JSONObject,
        denials: list[JSONObject],
        denied_untrusted: int = 0,
    ) -> None:
        """Write the last line, exactly one, however the run ended."""
        line: JSONObject = {"type": "result", "status": status, "reason": reason, "usage": usage}
        line |= {"denials": denials, "denied_untrusted": denied_untrusted}
        self._write(line | {"exit_code": exit_code})

    # Events

    def __call__(self, event: Event) -> None:
        """Take an event of the session."""
        if self._first is not None and isinstance(event, _AFTER_PROMPT):
            if isinstance(event, TaskComplete) and event.status != "completed":
                self.error(event.error or event.reason)
            else:
                self._begin(self._first)
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
        else:
            self._calls(event)

    def _new(self, kind: str, **fields: Any) -> JSONObject:
        item = {"id": f"item_{self._count}", "type": kind, **fields}
        self._count += 1
        return item

    def _write_item(self, what: str, item: JSONObject) -> None:
        self._write({"type": f"item.{what}", "item": dict(item)})

    def _turn_started(self, event: TurnStarted) -> None:
        self._write({"type": "turn.started"})

    def _message(self, event: AgentMessage) -> None:
        self._write_item("completed", self._new("agent_message", text=event.message))

    def _reasoning(self, event: AgentReasoning | AgentReasoningRaw) -> None:
        self._write_item("completed", self._new("reasoning", text=event.text))

    def _warning(self, event: Warning | PutBack) -> None:
        self._write_item("completed", self._new("error", message=event.message))

    def _stream_error(self, event: StreamError) -> None:
        self._write({"type": "error", "message": event.message})

    def _command(self, event: ExecCommandBegin) -> None:
        self._calls.command(event, shlex.join(event.command))

    def _patch_begin(self, event: PatchApplyBegin) -> None:
        changes = [
            {"path": path, "kind": str(change.get("type", "update"))}
            for path, change in event.changes.items()
        ]
        self._calls.itemised(event.call_id)
        item = self._new("file_change", changes=changes, status="in_progress")
        self._patches[event.call_id] = item
        self._write_item("started", item)

    def _patch_end(self, event: PatchApplyEnd) -> None:
        item = self._patches.pop(event.call_id, None)
        if item is not None:
            item["status"] = "completed" if event.success else "failed"
            self._calls.hold(event.call_id, item)

    def _plan_update(self, event: PlanUpdate) -> None:
        items = [
            {"text": str(step.get("step", "")), "completed": step.get("status") == "completed"}
            for step in event.plan
        ]
        if self._plan is None:
            self._plan = self._new("todo_list", items=items)
            self._write_item("started", self._plan)
        else:
            self._plan["items"] = items
            self._write_item("updated", self._plan)

    def _complete(self, event: TaskComplete) -> None:
        self._calls.close()
        for item in self._patches.values():
            self._write_item("completed", item | {"status": "failed"})
        self._patches.clear()
        if self._plan is not None:
            self._write_item("completed", self._plan)
            self._plan = None
        if event.status == "completed":
            self._write({"type": "turn.completed", "usage": turn_usage(event.usage)})
        else:
            self._write({"type": "turn.failed", "error": {"message": event.error or event.reason}})


def turn_usage(usage: JSONObject) -> JSONObject:
    """The counts that a finished turn reports."""
    return {name: count for name, count in usage.items() if name != "total_tokens"}


_AFTER_PROMPT = (
    UserMessage,
    AgentMessage,
    AgentMessageDelta,
    AgentReasoningDelta,
    ArgumentsPreview,
    ToolCallBegin,
    TaskComplete,
)
"""Events that come only once the prompt was written down."""

_HANDLERS: dict[type[Event], Callable[[ThreadEvents, Any], None]] = {
    TurnStarted: ThreadEvents._turn_started,
    AgentMessage: ThreadEvents._message,
    AgentReasoning: ThreadEvents._reasoning,
    AgentReasoningRaw: ThreadEvents._reasoning,
    PutBack: ThreadEvents._warning,
    Warning: ThreadEvents._warning,
    StreamError: ThreadEvents._stream_error,
    ExecCommandBegin: ThreadEvents._command,
    PatchApplyBegin: ThreadEvents._patch_begin,
    PatchApplyEnd: ThreadEvents._patch_end,
    PlanUpdate: ThreadEvents._plan_update,
    TaskComplete: ThreadEvents._complete,
}
