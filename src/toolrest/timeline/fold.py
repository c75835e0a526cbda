"""The fold: a session's events, one after the other, into its cells.

Events are told apart by their `type`, so none of their modules is loaded for this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolrest.answer import Answer
from toolrest.timeline.agents import Agents, state_of
from toolrest.timeline.calls import command_line, command_of, failure_reason, file_diffs, plan_steps
from toolrest.timeline.cells import (
    CallCell,
    Cell,
    EndCell,
    MessageCell,
    NoticeCell,
    PlanCell,
    ReasoningCell,
    UserCell,
)
from toolrest.timeline.questions import answered, asked_questions, question_cell

if TYPE_CHECKING:
    from toolrest.agent.conversation.events import (
        AgentMessage,
        AgentMessageDelta,
        AgentReasoning,
        AgentReasoningDelta,
        AgentReasoningRaw,
        ContextCompacted,
        StreamError,
        TaskComplete,
        TokenCount,
        UserMessage,
    )
    from toolrest.agent.subagents.subagents import AgentStatus
    from toolrest.events import (
        AnsweredElsewhere,
        ApprovalRequested,
        ConnectionBlocked,
        Event,
        ExecCommandBegin,
        ExecCommandEnd,
        MemorySaved,
        PatchApplyEnd,
        PlanUpdate,
        PutBack,
        RequestUserInput,
        ToolCallBegin,
        ToolCallDecision,
        ToolCallDelta,
        ToolCallEnd,
        ToolCallProgress,
        Warning,  # noqa: A004 - the event
        WeakSandbox,
    )
    from toolrest.tools.agents.events import CollabBegin, CollabEnd

_NOT_OURS = ("input_invalid", "tool_not_found")
"""Denials that are the call's own mistake: its failure says so."""
_RETRIED = {
    "rate_limit": "Rate limited",
    "overloaded": "Server overloaded",
    "server": "Server error",
    "unreachable": "No connection",
    "stream": "Connection lost",
}
_MOST_NOTES = 20
"""Of one call: a command may try to reach any number of hosts."""


class Timeline:
    """The cells of a session. `feed` takes an event and returns the cell that it changed."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.tokens = 0
        """Tokens of the last request and its answer: what the context window holds."""
        self.window: int | None = None
        self.cost: float | None = None
        """Dollars so far; None where a price is not known."""
        self._calls: dict[str, CallCell] = {}
        self._agents = Agents()
        self._message: MessageCell | None = None
        self._reasoning: ReasoningCell | None = None
        self._began = 0.0
        self._in_turn = False
        self._asking: set[str] = set()
        """Calls that wait for a person."""
        self._asked_at = self._waited_for = 0.0
        """Since when one does, and the seconds of the turn in which one did."""
        self._commands = 0
        self._files: set[str] = set()
        """Files that patches of the turn changed."""
        self._retry = ""
        self._failure = ""
        """Why the last call that failed did."""

    @property
    def running(self) -> list[CallCell]:
        """The calls that have not ended."""
        return list(self._calls.values())

    def feed(self, event: Event) -> Cell | None:
        """Fold one event in."""
        begins = event.type == "user_message" and not self._in_turn
        if begins or not self._began:  # sub-agents and commands also work between turns
            self._began, self._in_turn = event.time, self._in_turn or begins
        handler = _HANDLERS.get(event.type)
        return None if handler is None else handler(self, event)

    def _add(self, cell: Cell, event: Event) -> Cell:
        cell.time = event.time
        self.cells.append(cell)
        return cell

    # Messages

    def _user(self, event: UserMessage) -> Cell:
        return self._add(UserCell(text=event.message), event)

    def _message_delta(self, event: AgentMessageDelta) -> Cell:
        if self._message is None:
            self._message = MessageCell(done=False)
            self._add(self._message, event)
        self._message.text += event.delta
        return self._message

    def _whole_message(self, event: AgentMessage) -> Cell:
        cell = self._message or self._add(MessageCell(), event)
        self._message = None
        cell.text, cell.done = event.message, True  # type: ignore[attr-defined]
        return cell

    def _reasoning_delta(self, event: AgentReasoningDelta) -> Cell:
        if self._reasoning is None:
            self._reasoning = ReasoningCell(done=False)
            self._add(self._reasoning, event)
        self._reasoning.text += event.delta
        return self._reasoning

    def _whole_reasoning(self, event: AgentReasoning | AgentReasoningRaw) -> Cell:
        cell = self._reasoning or self._add(ReasoningCell(), event)
        self._reasoning = None
        cell.text, cell.done = event.text, True  # type: ignore[attr-defined]
        return cell

    # Calls

    def _begin(self, event: ToolCallBegin) -> Cell:
        cell = CallCell(
            call_id=event.call_id,
            tool=event.tool,
            arguments=event.arguments,
            icon=event.icon,
            hidden=event.exec_item == "todo_list",
            command=command_of(event.arguments),
        )
        if (other := self._calls.get(event.call_id)) is not None:
            _give_up(other, "a call with the same id began")
        self._calls[event.call_id] = cell
        return self._add(cell, event)

    def _call(self, call_id: str) -> CallCell | None:
        return self._calls.get(call_id)

    def _asked(self, event: ApprovalRequested) -> Cell | None:
        cell = self._call(event.call_id)
        if cell is not None:
            cell.state, cell.asked = "waiting", event.time
            self._asks(event)
        return cell

    def _asks(self, event: ApprovalRequested | RequestUserInput) -> None:
        self._asked_at = self._asked_at if self._asking else event.time
        self._asking.add(event.call_id)

    def _answered(self, event: ToolCallDecision | ToolCallEnd) -> None:
        """The time that a person takes is none of the turn's work."""
        if event.call_id in self._asking:
            self._asking.remove(event.call_id)
            self._waited_for += 0.0 if self._asking else event.time - self._asked_at

    def _elsewhere(self, event: AnsweredElsewhere) -> Cell:
        answer = event.answer.replace("_", " ")
        note = f": {event.note}" if event.note else ""
        text = f"{answer} from the browser{note}"
        return self._add(NoticeCell(level="note", text=text), event)

    def _decision(self, event: ToolCallDecision) -> Cell | None:
        cell = self._call(event.call_id)
        if cell is None:
            return None
        self._answered(event)
        if cell.asked is not None:
            cell.waited, cell.asked = cell.waited + event.time - cell.asked, None
        if event.verdict == Answer.DENY and event.rule not in _NOT_OURS:
            cell.state, cell.reason, cell.rule = "denied", event.reason, event.rule
            if event.said:
                cell.reason, cell.rule = event.said, ""
        elif event.verdict == Answer.ALLOW:
            cell.state, cell.reason = "running", ""
            cell.is_confined = event.sandbox != "none"
        return cell

    def _command(self, event: ExecCommandBegin) -> Cell | None:
        cell = self._call(event.call_id)
        if cell is not None:
            cell.command, cell.cwd, cell.state = command_line(event.command), event.cwd, "running"
            self._commands += 1
        return cell

    def _command_end(self, event: ExecCommandEnd) -> None:
        cell = self._call(event.call_id)
        if cell is not None:
            cell.ran = event.duration

    def _delta(self, event: ToolCallDelta) -> Cell | None:
        cell = self._call(event.call_id)
        if cell is not None:
            cell.output.feed(event.text)
        return cell

    def _progress(self, event: ToolCallProgress) -> Cell | None:
        cell = self._call(event.call_id)
        if cell is not None:
            done = "" if event.fraction is None else f" ({event.fraction:.0%})"
            cell.progress = f"{event.message}{done}"
        return cell

    def _patch(self, event: PatchApplyEnd) -> Cell | None:
        cell = self._call(event.call_id)
        if cell is not None:
            cell.files = tuple(file_diffs(event.changes))
            self._files.update(file.path for file in cell.files if event.success)
            cell.reason = "" if event.success else event.stderr.strip()
        return cell

    def _blocked(self, event: ConnectionBlocked) -> Cell | None:
        text = f"the sandbox blocked a connection to {event.host}:{event.port}"
        running = [cell for cell in self._calls.values() if cell.state == "running"]
        if len(running) == 1:
            notes = running[0].notes
            if text in notes or len(notes) >= _MOST_NOTES:
                return None
            running[0].notes += (text,)
            return running[0]
        return self._add(NoticeCell(level="warning", text=text), event)

    def _questions(self, event: RequestUserInput) -> Cell | None:
        """The call is a question: its cell takes the place of the call's."""
        call, questions = self._call(event.call_id), asked_questions(event.questions)
        if call is None or not questions:
            return call
        self._asks(event)
        cell = question_cell(call, questions)
        self._calls[event.call_id] = cell
        self.cells = [cell if one is call else one for one in self.cells]
        return cell

    # Sub-agents

    def _spawned(self, event: CollabEnd) -> Cell | None:
        """The agent has a cell of its own, and the call that started it shows if it failed."""
        agent, call = self._agents.spawned(event), self._call(event.call_id)
        if agent is None:
            return call
        if call is not None:
            call.hidden = True
        self.cells.append(agent)
        return agent

    def _waited(self, event: CollabBegin) -> Cell | None:
        """Waiting shows in the cells of the agents."""
        cell = self._call(event.call_id)
        if cell is not None:
            cell.hidden = True
        return cell

    def _agent_status(self, event: AgentStatus) -> Cell | None:
        agent, is_new = self._agents.status(event)
        if is_new and (agent.task or agent.depth):
            self.cells.append(agent)
        elif is_new:
            return None  # the end of the call that starts it has its task
        return agent

    def _agent_states(self, event: CollabEnd) -> Cell | None:
        cell = self._call(event.call_id)
        if cell is not None:
            cell.notes += tuple(
                f"{self._agents.name(name)}: {state_of(state)[0]}"
                for name, state in event.statuses.items()
            )
        return cell

    def _end(self, event: ToolCallEnd) -> Cell | None:
        cell = self._calls.pop(event.call_id, None)
        if cell is None:
            return None
        self._answered(event)
        cell.output.flush()
        cell.done, cell.result, cell.exit_code = True, event.output, event.exit_code
        cell.sandbox, cell.spill = event.sandbox, event.spill
        if cell.ran is not None and event.exit_code is not None:
            cell.is_confined = event.sandbox != "none"
        cell.seconds = max(0.0, event.duration - cell.waited) if cell.ran is None else cell.ran
        if event.failure in ("policy_denied", "approval_denied"):
            cell.state, cell.reason = "denied", cell.reason or event.output.strip()
        elif event.failure is not None and not (
            event.failure == "execution_failed" and event.exit_code
        ):  # an exit code says it all
            cell.state, cell.is_stopped = "failed", event.failure == "aborted"
            reason = event.said or failure_reason(event.failure, event.output)
            cell.reason = self._failure = cell.reason or reason
        else:
            cell.state = "failed" if event.exit_code or event.success is False else "done"
        answered(cell)
        return cell

    # The rest

    def _plan(self, event: PlanUpdate) -> Cell:
        steps = plan_steps(event.plan)
        return self._add(PlanCell(steps=steps, explanation=event.explanation or ""), event)

    def _memory(self, event: MemorySaved) -> Cell:
        text = f"remembered for {event.scope}: {event.text}"
        return self._add(NoticeCell(level="note", text=text, detail=f"kept in {event.path}"), event)

    def _warning(self, event: Warning) -> Cell:
        return self._add(NoticeCell(level="warning", text=event.message), event)

    def _weak(self, event: WeakSandbox) -> Cell:
        return self._add(NoticeCell(level="weak", text=event.message), event)

    def _put_back(self, event: PutBack) -> Cell:
        return self._add(NoticeCell(level="warning", text=event.message), event)

    def _again(self, event: StreamError) -> Cell:
        """Name the reason once, however often the connection is tried."""
        is_repeat = event.reason == self._retry
        self._retry = event.reason
        self._close_open()
        when = f"in {event.seconds:.0f} s" if event.seconds >= 0.95 else "now"
        what = _RETRIED.get(event.kind, "The request failed")
        return self._add(
            NoticeCell(
                level="warning",
                text=f"{what}; trying again {when} ({event.attempt} of {event.most})",
                detail="" if is_repeat else event.reason,
                is_repeat=is_repeat,
            ),
            event,
        )

    def _compacted(self, event: ContextCompacted) -> Cell:
        before, after = f"{event.tokens_before:,}", f"{event.tokens_after:,}"
        text = f"the conversation was summarised: {before} tokens became {after}"
        return self._add(NoticeCell(level="note", text=text), event)

    def _count(self, event: TokenCount) -> None:
        self.tokens = int(event.last.get("total_tokens") or 0)
        self.window, self.cost = event.model_context_window, event.cost

    def _complete(self, event: TaskComplete) -> Cell:
        self._close_open()
        for cell in self._calls.values():
            _give_up(cell, "the turn ended")
        self._calls.clear()
        end = EndCell(
            status=event.status,
            reason=event.reason,
            error="" if event.error == self._failure else event.error or "",
            seconds=max(0.0, event.time - self._began - self._waited_for),
            input_tokens=int(event.usage.get("input_tokens") or 0),
            output_tokens=int(event.usage.get("output_tokens") or 0),
            cost=event.cost,
            commands=self._commands,
            files=len(self._files),
        )
        self._commands = 0
        self._files.clear()
        self._began, self._in_turn, self._waited_for = 0.0, False, 0.0
        self._asking.clear()
        return self._add(end, event)

    def _close_open(self) -> None:
        """End what was being written: an interrupted or repeated answer has no whole message."""
        for cell in (self._message, self._reasoning):
            if cell is not None:
                cell.done = True
        self._message = self._reasoning = None


def _give_up(cell: CallCell, reason: str) -> None:
    """End a call whose end never came."""
    cell.output.flush()
    cell.done, cell.state = True, "failed"
    cell.reason = cell.reason or reason


_HANDLERS: dict[str, Callable[[Timeline, Any], Cell | None]] = {
    "user_message": Timeline._user,
    "agent_message": Timeline._whole_message,
    "agent_message_content_delta": Timeline._message_delta,
    "agent_reasoning": Timeline._whole_reasoning,
    "agent_reasoning_raw_content": Timeline._whole_reasoning,
    "reasoning_content_delta": Timeline._reasoning_delta,
    "tool_call_begin": Timeline._begin,
    "approval_requested": Timeline._asked,
    "exec_approval_request": Timeline._asked,
    "apply_patch_approval_request": Timeline._asked,
    "answered_elsewhere": Timeline._elsewhere,
    "tool_call_decision": Timeline._decision,
    "tool_call_delta": Timeline._delta,
    "exec_command_output_delta": Timeline._delta,
    "tool_call_progress": Timeline._progress,
    "exec_command_begin": Timeline._command,
    "exec_command_end": Timeline._command_end,
    "patch_apply_end": Timeline._patch,
    "connection_blocked": Timeline._blocked,
    "tool_call_end": Timeline._end,
    "request_user_input": Timeline._questions,
    "collab_agent_status": Timeline._agent_status,
    "collab_agent_call": lambda timeline, event: timeline._agents.call(event),
    "collab_agent_spawn_end": Timeline._spawned,
    "collab_agent_interaction_begin": lambda timeline, event: timeline._agents.messaged(event),
    "collab_agent_interaction_end": Timeline._agent_states,
    "collab_waiting_begin": Timeline._waited,
    "collab_close_end": Timeline._agent_states,
    "collab_resume_end": Timeline._agent_states,
    "plan_update": Timeline._plan,
    "memory_saved": Timeline._memory,
    "warning": Timeline._warning,
    "weak_sandbox": Timeline._weak,
    "put_back": Timeline._put_back,
    "stream_error": Timeline._again,
    "context_compacted": Timeline._compacted,
    "token_count": Timeline._count,
    "task_complete": Timeline._complete,
}
