"""The live part's content: what runs, what is asked, the plan, what is queued, the state.

Styled lines, computed from data; never more rows than it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, time

from msgspec import Struct, field

from toolrest.chat.picker import Picker
from toolrest.chat.question_view import question_lines
from toolrest.chat.questions import Questions
from toolrest.timeline.calls import call_title
from toolrest.timeline.cells import (
    AgentCell,
    CallCell,
    PlanCell,
    QuestionCell,
    ReasoningCell,
)
from toolrest.timeline.draw import Line, duration, safe_lines
from toolrest.timeline.look import Look
from toolrest.timeline.text import cut_to, text_width
from toolrest.timeline.wrap import first_row

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAN_ROWS = 8
_QUEUE_ROWS = 4
_NARROW = 24
"""Columns that are too few to show a request whole, row by row."""
_STOPS = " · Esc stops"


class LiveState(Struct, eq=False):
    """What the live part shows."""

    questions: Questions
    running: list[CallCell] = field(default_factory=list)
    agents: list[AgentCell] = field(default_factory=list)
    """Sub-agents at work; they go on after the turn that began them."""
    rows: list[Line] = field(default_factory=list)
    """Of the message that is being written, those that may change."""
    reasoning: ReasoningCell | None = None
    plan: PlanCell | None = None
    plan_above: PlanCell | None = None
    """The last plan that was put above the live part."""
    queue: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    picker: Picker | None = None
    began: float | None = None
    """When the turn began; None while none is under way."""
    doing: str = ""
    """What is done where no call runs: the next try to reach the model."""
    hint: str = ""
    workspace: str = ""

    def lines(self, room: int, width: int) -> list[Line]:
        """The lines above the composer, at most `room` of them, none wider than `width`."""
        room, width = max(room, 1), max(width, 10)
        first = self.questions.first
        if first is not None:
            lines = question_lines(self.questions, first, room, width)
            left = room - len(lines)
            return [*(self._queue(width)[-left:] if left > 0 else []), *lines]
        if self.picker is not None:
            apart: list[Line] = [[]] if room > 5 else []
            lines = self.picker.lines(room - len(apart))
            return [*apart, *(clipped(line, width) for line in lines)]
        parts = self.rows + self._calls(width) + self._agents(width) + self._plan(width)
        tail = self._queue(width) + self._status(width)
        kept = room - len(tail)
        shown = parts[-kept:] if kept > 0 else []
        return [*(first_row(line, width) for line in shown), *tail[-room:]]

    def _calls(self, width: int) -> list[Line]:
        look = Look(width + 1, self.workspace, is_live=True)
        asked = (QuestionCell,)  # the question itself is asked below
        return [row for c in self.running if not isinstance(c, asked) for row in look.lines(c)]

    def _agents(self, width: int) -> list[Line]:
        look = Look(width + 1, self.workspace)
        nested = sorted(self.agents, key=lambda cell: cell.path)
        return [line for cell in nested for line in look.lines(cell)]

    def _plan(self, width: int) -> list[Line]:
        if self.began is None or self.plan is None or self.plan.is_complete:
            return []
        lines = Look(width + 1).lines(self.plan)
        if len(lines) <= _PLAN_ROWS:
            return lines
        current = next((n for n, s in enumerate(self.plan.steps) if s.status == "in_progress"), 0)
        start = min(max(0, current - 2), len(lines) - _PLAN_ROWS)
        return lines[start : start + _PLAN_ROWS]

    def settled_plan(self, *, is_last: bool = False) -> list[PlanCell]:
        """The plan, once, when nothing more comes of it: it is done, or the turn is."""
        settled = is_last or self.began is None or (self.plan is not None and self.plan.is_complete)
        if self.plan is None or self.plan is self.plan_above or not settled:
            return []
        self.plan_above = self.plan
        return [self.plan]

    def _queue(self, width: int) -> list[Line]:
        waiting = [("next", text) for text in self.sent] + [("queued", text) for text in self.queue]
        return [
            clipped([("dim", f"  {when}: {safe_lines(text)[0]}")], width)
            for when, text in waiting[-_QUEUE_ROWS:]
        ]

    def _status(self, width: int) -> list[Line]:
        if self.began is None:
            return []
        elapsed = monotonic() - self.began
        mark = SPINNER[int(elapsed * 8) % len(SPINNER)]
        doing = self.doing or "Working"
        if self.reasoning is not None and (text := self.reasoning.text.strip()):
            doing = f"Thinking: {safe_lines(text)[-1]}"
        elif not self.doing and (running := [c for c in self.running if c.state == "running"]):
            doing, elapsed = self._running(running)
        took = duration(elapsed) if elapsed >= 10 else f"{elapsed:.0f} s"
        facts = f" · {took}{_STOPS}"
        doing = cut_to(doing, max(width - len(facts) - 4, 8))
        return [clipped([("cyan", f"{mark} "), ("", doing), ("dim", facts)], width)]

    def _running(self, cells: Sequence[CallCell]) -> tuple[str, float]:
        """What runs, and for how long; of several the first, and how many more there are."""
        first = cells[0]
        title = first.command or call_title(first.tool, first.arguments, self.workspace)
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        return f"Running {safe_lines(title)[0]}{more}", max(0.0, time() - first.time - first.waited)


def clipped(line: Line, width: int) -> Line:
    """A line no wider than `width` columns."""
    found: Line = []
    left = width
    for style, text in line:
        if text_width(text) > left:
            found.append((style, cut_to(text, left) if left > 0 else ""))
            break
        found.append((style, text))
        left -= text_width(text)
    return found


def one_line(lines: Sequence[Line], width: int) -> Line:
    """The first of some lines, as far as it fits, and how many more there are."""
    count = len(lines) - 1
    more = f" … {count} more {'line' if count == 1 else 'lines'}" if count else ""
    return [*clipped(lines[0], max(width - len(more), 1)), ("dim", more)]
