"""The timeline of a run on a terminal: one short paragraph for each event."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import click

from toolrest.agent.conversation.events import (
    AgentMessage,
    AgentReasoning,
    AgentReasoningRaw,
    ContextCompacted,
    StreamError,
    TaskComplete,
)
from toolrest.answer import Answer
from toolrest.events import (
    Event,
    ExecCommandBegin,
    ExecCommandOutputDelta,
    MemorySaved,
    PatchApplyEnd,
    PlanUpdate,
    ToolCallBegin,
    ToolCallDecision,
    ToolCallDelta,
    ToolCallEnd,
    Warning,  # noqa: A004 - the event
)
from toolrest.policy.terminal_safe import display_safe

_WIDTH = 110
_LINES = 6
_KEPT = 20_000
_MARKS = {"add": "A", "delete": "D", "update": "M"}
_STEPS = {"completed": "✔", "in_progress": "▸"}


class Timeline:
    """A listener that prints events, by default to stderr.

    The last message is held back: it is the answer, and the caller prints it.
    """

    def __init__(self, *, err: bool = True) -> None:
        self._err = err
        self._start = monotonic()
        self._begun: dict[str, ToolCallBegin] = {}
        self._shown: set[str] = set()
        self._output: dict[str, str] = {}
        self._held: str | None = None
        self._reason = ""

    def __call__(self, event: Event) -> None:
        """Print the event, if it is one to show."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            if self._held is not None and not isinstance(event, TaskComplete):
                self._print(self._held)
                self._held = None
            handler(self, event)

    def head(self, text: str) -> None:
        """A line of the frame."""
        self._print(text, dim=True)

    def _print(self, text: str, mark: str = "", **style: Any) -> None:
        body = "\n".join(visible(line) for line in text.splitlines()) or ""
        # A reader that has seen enough closes the pipe; the work goes on.
        with suppress(BrokenPipeError):
            click.echo(click.style(f"{mark}{body}", **style), err=self._err)

    def _message(self, event: AgentMessage) -> None:
        self._held = event.message

    def _reasoning(self, event: AgentReasoning | AgentReasoningRaw) -> None:
        self._print(event.text, dim=True, italic=True)

    def _begin(self, event: ToolCallBegin) -> None:
        self._begun[event.call_id] = event

    def _command(self, event: ExecCommandBegin) -> None:
        self._shown.add(event.call_id)
        self._print(f"$ {_line(event.command)}", bold=True)

    def _delta(self, event: ToolCallDelta) -> None:
        kept = self._output.get(event.call_id, "")
        if len(kept) < _KEPT:
            self._output[event.call_id] = kept + event.text

    def _decision(self, event: ToolCallDecision) -> None:
        if event.verdict == Answer.DENY and event.rule not in ("input_invalid", "tool_not_found"):
            self._announce(event.call_id)
            self._print(f"  ✗ denied ({event.rule}): {event.reason}", fg="red")

    def _announce(self, call_id: str) -> None:
        """Name the call, unless that was done."""
        begun = self._begun.get(call_id)
        if begun is None or call_id in self._shown:
            return
        self._shown.add(call_id)
        if begun.exec_item != "todo_list":  # the plan itself is printed
            self._print(_call_line(begun), bold=True)

    def _end(self, event: ToolCallEnd) -> None:
        self._announce(event.call_id)
        printed = self._output.pop(event.call_id, "")
        if printed.strip():
            self._quote(printed)
        self._begun.pop(event.call_id, None)
        self._shown.discard(event.call_id)
        took = f"{event.duration:.1f} s" if event.duration >= 0.05 else ""
        if event.failure in ("policy_denied", "approval_denied"):
            return
        ended_badly = event.failure == "execution_failed" and event.exit_code
        if event.failure is not None and not ended_badly:
            first = event.output.strip().splitlines() or [""]
            why = first[-1] if event.failure == "sandbox_denied" else first[0]
            self._print(f"  ✗ {event.failure}: {why}", fg="red")
        elif event.exit_code:
            self._print(f"  ✗ exit code {event.exit_code} {took}".rstrip(), fg="yellow")
        elif took:
            self._print(f"  ✔ {took}", fg="green")

    def _quote(self, text: str) -> None:
        lines = text.rstrip().splitlines()
        if len(lines) > _LINES:
            more = len(lines) - _LINES + 1
            lines = [*lines[: _LINES // 2], f"… {more} more lines …", *lines[-(_LINES // 2 - 1) :]]
        for line in lines:
            self._print(f"  {line}", dim=True)

    def _patch(self, event: PatchApplyEnd) -> None:
        self._shown.add(event.call_id)
        colour = "green" if event.success else "red"
        for path, change in event.changes.items():
            self._print(f"{_MARKS.get(str(change.get('type')), 'M')} {path}", fg=colour)

    def _plan(self, event: PlanUpdate) -> None:
        for step in event.plan:
            mark = _STEPS.get(str(step.get("status")), "·")
            self._print(f"  {mark} {step.get('step')}", fg="cyan")

    def _memory(self, event: MemorySaved) -> None:
        self._print(f"remembered for {event.scope}: {event.text}", mark="! ", fg="yellow")
        self._print(f"  kept in {event.path}", dim=True)

    def _note(self, event: Warning) -> None:
        self._print(event.message, mark="! ", fg="yellow")

    def _again(self, event: StreamError) -> None:
        """Print the reason once, however often the connection is tried."""
        message, _, reason = event.message.partition(" (")
        self._print(message if reason == self._reason else event.message, mark="! ", fg="yellow")
        self._reason = reason

    def _compacted(self, event: ContextCompacted) -> None:
        message = f"the conversation was summarised: {event.tokens_before:,} tokens became"
        self._print(f"{message} {event.tokens_after:,}", mark="! ", fg="yellow")

    def _complete(self, event: TaskComplete) -> None:
        if event.status != "completed":
            if self._held is not None:
                self._print(self._held)
            self._print(f"{event.status}: {event.error}", mark="✗ ", fg="red")
        self._held = None
        used = event.usage
        self._print(
            f"{monotonic() - self._start:.1f} s, {used['input_tokens']:,} tokens in, "
            f"{used['output_tokens']:,} out",
            dim=True,
        )


def visible(line: str, width: int = 400) -> str:
    """A line with nothing in it that moves the cursor, cut to `width`."""
    line = "".join(char if char.isprintable() else display_safe(char) for char in line[:width])
    return line if len(line) < width else line[: width - 1] + "…"


def _line(command: tuple[str, ...]) -> str:
    """What runs, without the shell around it."""
    if len(command) == 3 and command[1] in ("-c", "-lc"):
        return command[2]
    return shlex.join(command)


def _call_line(begun: ToolCallBegin) -> str:
    """A call in one line: a command as it would be typed, a single argument by itself."""
    try:
        values = json.loads(begun.arguments)
    except ValueError:
        values = None
    text = begun.arguments
    if isinstance(values, dict):
        line = values.get("cmd", values.get("command"))
        if line is not None:
            return _cut(f"$ {shlex.join(map(str, line)) if isinstance(line, list) else line}")
        if len(values) == 1:
            (value,) = values.values()
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _cut(f"{begun.tool} {' '.join(text.split())}".rstrip())


def _cut(text: str) -> str:
    return text if len(text) < _WIDTH else text[: _WIDTH - 1] + "…"


_HANDLERS: dict[type[Event], Callable[[Timeline, Any], None]] = {
    AgentMessage: Timeline._message,
    AgentReasoning: Timeline._reasoning,
    AgentReasoningRaw: Timeline._reasoning,
    ToolCallBegin: Timeline._begin,
    ToolCallDelta: Timeline._delta,
    ExecCommandOutputDelta: Timeline._delta,
    ToolCallDecision: Timeline._decision,
    ToolCallEnd: Timeline._end,
    ExecCommandBegin: Timeline._command,
    PatchApplyEnd: Timeline._patch,
    PlanUpdate: Timeline._plan,
    MemorySaved: Timeline._memory,
    Warning: Timeline._note,
    StreamError: Timeline._again,
    ContextCompacted: Timeline._compacted,
    TaskComplete: Timeline._complete,
}
