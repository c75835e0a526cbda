"""Updates of the Agent Client Protocol, made from our events."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import ToolCallLocation

from toolrest.agent.conversation.events import AgentMessage, AgentMessageDelta, AgentReasoningDelta
from toolrest.events import (
    Event,
    ExecCommandOutputDelta,
    PatchApplyBegin,
    PlanUpdate,
    ToolCallBegin,
    ToolCallDelta,
    ToolCallEnd,
)
from toolrest.items import JSONObject

_SHOWN = 20_000


class Updates:
    """Turns events into updates, in order; tracks which part of a message was streamed."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._streamed = ""
        self._outputs: dict[str, str] = {}
        self._with_diff: set[str] = set()

    def of(self, event: Event) -> Iterator[Any]:
        """The updates for one event; none for what an editor does not show."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            yield from handler(self, event)

    def _delta(self, event: AgentMessageDelta) -> Iterator[Any]:
        self._streamed += event.delta
        yield update_agent_message_text(event.delta)

    def _message(self, event: AgentMessage) -> Iterator[Any]:
        rest = event.message.removeprefix(self._streamed) if self._streamed else event.message
        streamed, self._streamed = self._streamed, ""
        if rest and not (streamed and rest == event.message):
            yield update_agent_message_text(rest)

    def _thought(self, event: AgentReasoningDelta) -> Iterator[Any]:
        yield update_agent_thought_text(event.delta)

    def _begin(self, event: ToolCallBegin) -> Iterator[Any]:
        icon: Any = event.icon  # tools use this protocol's kinds
        given = _arguments(event.arguments)
        path = next((given[key] for key in ("file_path", "path", "dir_path") if key in given), None)
        places = [ToolCallLocation(path=os.path.join(self._cwd, str(path)))] if path else None
        yield start_tool_call(
            event.call_id,
            _title(event.tool, given),
            kind=icon,
            status="in_progress",
            locations=places,
            raw_input=given or event.arguments,
        )

    def _output(self, event: ToolCallDelta) -> Iterator[Any]:
        seen = (self._outputs.get(event.call_id, "") + event.text)[-_SHOWN:]
        self._outputs[event.call_id] = seen
        yield update_tool_call(event.call_id, content=[tool_content(text_block(seen))])

    def _patch(self, event: PatchApplyBegin) -> Iterator[Any]:
        self._with_diff.add(event.call_id)
        diffs = [self._diff(path, change) for path, change in event.changes.items()]
        yield update_tool_call(event.call_id, content=[diff for diff in diffs if diff])

    def _diff(self, path: str, change: Any) -> Any:
        full = os.path.join(self._cwd, path)
        kind = change.get("type") if isinstance(change, dict) else None
        if kind == "add":
            return tool_diff_content(full, str(change.get("content", "")))
        if kind == "delete":
            return tool_diff_content(full, "", str(change.get("content", "")))
        diff = change.get("unified_diff", "") if isinstance(change, dict) else ""
        return tool_content(text_block(f"{full}\n{diff}")) if diff else None

    def _end(self, event: ToolCallEnd) -> Iterator[Any]:
        self._outputs.pop(event.call_id, None)
        failed = event.failure is not None or event.success is False
        keeps_diff = event.call_id in self._with_diff and not failed
        self._with_diff.discard(event.call_id)
        yield update_tool_call(
            event.call_id,
            status="failed" if failed else "completed",
            content=None if keeps_diff else [tool_content(text_block(event.output[:_SHOWN]))],
        )

    def _plan(self, event: PlanUpdate) -> Iterator[Any]:
        entries = [plan_entry(step["step"], status=step["status"]) for step in event.plan]
        yield update_plan(entries)


_HANDLERS: dict[type[Event], Callable[[Updates, Any], Iterator[Any]]] = {
    AgentMessageDelta: Updates._delta,
    AgentMessage: Updates._message,
    AgentReasoningDelta: Updates._thought,
    ToolCallBegin: Updates._begin,
    ToolCallDelta: Updates._output,
    ExecCommandOutputDelta: Updates._output,
    PatchApplyBegin: Updates._patch,
    ToolCallEnd: Updates._end,
    PlanUpdate: Updates._plan,
}


def _arguments(text: str) -> JSONObject:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _title(tool: str, given: JSONObject) -> str:
    for key in ("cmd", "command", "file_path", "path", "dir_path", "pattern", "url", "query"):
        value = given.get(key)
        if isinstance(value, list):
            value = " ".join(map(str, value))
        if isinstance(value, str) and value:
            return f"{tool}: {value[:120]}"
    return tool
