"""Updates of the Agent Client Protocol, made from our events and from stored items."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import (
    AgentPlanUpdate,
    Cost,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
)

from toolrest.agent.conversation.events import (
    AgentMessage,
    AgentMessageDelta,
    AgentReasoningDelta,
    TokenCount,
)
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
from toolrest.policy.terminal_safe import display_safe
from toolrest.serve.acp import diffs
from toolrest.timeline.calls import arguments_of, call_title, command_of
from toolrest.timeline.cells import CallCell, MessageCell, ReasoningCell, UserCell
from toolrest.timeline.stored import stored_cells

_SHOWN = 20_000
_TITLE = 200


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
        yield _started(event.call_id, event.tool, event.arguments, self._cwd, icon, "in_progress")

    def _output(self, event: ToolCallDelta) -> Iterator[Any]:
        seen = (self._outputs.get(event.call_id, "") + event.text)[-_SHOWN:]
        self._outputs[event.call_id] = seen
        yield update_tool_call(event.call_id, content=[tool_content(text_block(seen))])

    def _patch(self, event: PatchApplyBegin) -> Iterator[Any]:
        if shown := diffs.of_changes(event.changes, self._cwd):
            self._with_diff.add(event.call_id)
            yield update_tool_call(event.call_id, content=shown)

    def _end(self, event: ToolCallEnd) -> Iterator[Any]:
        self._outputs.pop(event.call_id, None)
        failed = event.failure is not None or event.success is False
        keeps_diff = event.call_id in self._with_diff and not failed
        self._with_diff.discard(event.call_id)
        output = event.output[:_SHOWN]
        yield update_tool_call(
            event.call_id,
            status="failed" if failed else "completed",
            content=None if keeps_diff else [tool_content(text_block(output))],
            raw_output=output,
        )

    def _plan(self, event: PlanUpdate) -> Iterator[Any]:
        yield _plan(event.plan)

    def _usage(self, event: TokenCount) -> Iterator[Any]:
        used, size = event.last.get("total_tokens"), event.model_context_window
        if size and isinstance(used, int):
            cost = None if event.cost is None else Cost(amount=event.cost, currency="USD")
            yield UsageUpdate(session_update="usage_update", used=used, size=size, cost=cost)


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
    TokenCount: Updates._usage,
}


def replayed(items: Iterable[JSONObject], cwd: str, icon_of: Callable[[str], Any]) -> Iterator[Any]:
    """The updates of a stored conversation: its messages, calls with their outputs, last plan."""
    plan = None
    for cell in stored_cells(items):
        match cell:
            case UserCell():
                yield update_user_message_text(cell.text)
            case MessageCell():
                yield update_agent_message_text(cell.text)
            case ReasoningCell():
                yield update_agent_thought_text(cell.text)
            case CallCell():
                plan = _steps(cell.arguments) or plan
                icon = icon_of(cell.tool)
                yield _started(cell.call_id, cell.tool, cell.arguments, cwd, icon, "pending")
                yield _ended(cell, cwd)
    if plan:
        yield _plan(plan)


def _started(
    call_id: str, tool: str, arguments: str, cwd: str, icon: Any, status: Any
) -> ToolCallStart:
    given = arguments_of(arguments)
    path = next((given[key] for key in ("file_path", "path", "dir_path") if key in given), None)
    places = [ToolCallLocation(path=os.path.join(cwd, str(path)))] if path else None
    return start_tool_call(
        call_id,
        _title(tool, arguments, cwd),
        kind=icon,
        status=status,
        locations=places,
        raw_input=given or arguments,
    )


def _ended(cell: CallCell, cwd: str) -> ToolCallProgress:
    failed = cell.state == "failed" or not cell.done
    output = cell.result[:_SHOWN] if cell.done else "it has no output: the session was interrupted"
    shown = [] if failed else diffs.of_call(cell.arguments, cwd)
    content: list[Any] = [*shown] or [tool_content(text_block(output))]
    status: Any = "failed" if failed else "completed"
    return update_tool_call(cell.call_id, status=status, content=content, raw_output=output)


def _plan(steps: Iterable[JSONObject]) -> AgentPlanUpdate:
    return update_plan([plan_entry(step["step"], status=step["status"]) for step in steps])


def _steps(arguments: str) -> list[JSONObject]:
    """The steps of a call that sets the plan; none for any other."""
    plan = arguments_of(arguments).get("plan")
    steps = plan if isinstance(plan, list) else []
    return [step for step in steps if _is_step(step)]


def _is_step(step: Any) -> bool:
    return (
        isinstance(step, dict)
        and isinstance(step.get("step"), str)
        and step.get("status") in ("pending", "in_progress", "completed")
    )


def _title(tool: str, arguments: str, cwd: str) -> str:
    """A call in one line for a person: its command, the files that it edits, or its arguments."""
    command = command_of(arguments)
    if command is None and (shown := diffs.of_call(arguments, cwd)):
        return diffs.title(shown, cwd)
    title = display_safe(command if command is not None else call_title(tool, arguments, cwd))
    return title if len(title) <= _TITLE else f"{title[:_TITLE]} …"
