"""The drawing of cells as styled lines, for any terminal front end.

A line is a list of (style, text); styles are words of `STYLES`. Text that others wrote holds
nothing that acts on a terminal. Messages are neither cut nor wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from toolrest.timeline.calls import call_title, shorter
from toolrest.timeline.cells import (
    TAIL,
    AgentCell,
    CallCell,
    Cell,
    EndCell,
    FileDiff,
    MessageCell,
    NoticeCell,
    PlanCell,
    QuestionCell,
    ReasoningCell,
    UserCell,
)
from toolrest.timeline.draw_diff import counts, diff_lines
from toolrest.timeline.questions import shown_answers
from toolrest.timeline.text import rows, safe_text, text_width
from toolrest.timeline.text import safe_lines as safe_lines
from toolrest.timeline.wrap import Line as Line

STYLES = {
    "": "",
    "bold": "1",
    "dim": "2",
    "italic": "2;3",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "blue": "34",
    "magenta": "35",
    "emphasis": "3",
    "struck": "9",
    "underline": "4",
    "code": "36",
    "changed": "7",
    "link": "4;34",
    "user": "",
    "mark": "1",
}
"""The words of styles with their ANSI codes, of the terminal's own palette: for light and dark.

A style is none or more of them; `link` is the last, with an address behind it.
"""
_RUNNING = re.compile(r"^Process running with session ID (\d+)$", re.MULTILINE)
_STEPS = {"completed": ("green", "✔"), "in_progress": ("cyan", "▸")}
_AGENTS = {"completed": ("green", "✔"), "errored": ("red", "✗"), "running": ("cyan", "▸")}
_KINDS = {"add": "A", "delete": "D", "update": "M"}
_INDENT = "  "
"""Before each line of a command's output."""
_COMMAND_LINES = 12
_DIFF_LINES = 60


class Drawing(Struct):
    """How to draw: the width where there is one, the folder that paths are relative to."""

    width: int | None = None
    workspace: str = ""
    tail: int = TAIL

    def lines(self, cell: Cell) -> list[Line]:
        """The lines of a cell; none where there is nothing to show."""
        draw = _DRAWINGS.get(type(cell))
        return [] if draw is None else draw(self, cell)

    def _user(self, cell: UserCell) -> list[Line]:
        lines = message_lines(cell.text)
        return [[("bold", "> " if n == 0 else "  "), ("", line)] for n, line in enumerate(lines)]

    def _message(self, cell: MessageCell) -> list[Line]:
        return [[("", line)] for line in message_lines(cell.text.strip("\n"))]

    def _reasoning(self, cell: ReasoningCell) -> list[Line]:
        return [[("italic", line)] for line in safe_lines(cell.text.strip())]

    def _plan(self, cell: PlanCell) -> list[Line]:
        head: list[Line] = [[("dim", line)] for line in safe_lines(cell.explanation) if line]
        for step in cell.steps:
            style, mark = _STEPS.get(step.status, ("dim", "·"))
            head.append([("", "  "), (style, f"{mark} {safe_lines(step.text)[0]}")])
        return head

    def _notice(self, cell: NoticeCell) -> list[Line]:
        if cell.level == "weak":
            return [[("red", row)] for row in rows(cell.text, self.width or len(cell.text) + 9)]
        style = {"note": "yellow", "warning": "yellow", "error": "red"}[cell.level]
        mark = "✗ " if cell.level == "error" else "! "
        lines: list[Line] = [[(style, line)] for line in safe_lines(cell.text)]
        lines[0].insert(0, (style, mark))
        detail = [line for line in safe_lines(cell.detail) if line]
        more = len(detail) - self.tail
        lines += [[("dim", f"  {line}")] for line in detail[: self.tail]]
        return [*lines, [("dim", f"  … {more_lines(more)}")]] if more > 0 else lines

    def _end(self, cell: EndCell) -> list[Line]:
        lines: list[Line] = []
        if cell.reason == "interrupted":
            took = duration(cell.seconds if cell.seconds < 1 else round(cell.seconds))
            return [[("dim", f"stopped after {took.replace('.0 s', ' s')}")]]
        if cell.status != "completed":
            lines = [
                [("red", line)]
                for line in safe_lines(": ".join(filter(None, (f"✗ {cell.status}", cell.error))))
            ]
        tokens = f"{cell.input_tokens:,} tokens in, {cell.output_tokens:,} out"
        cost = "" if cell.cost is None else f", {dollars(cell.cost)}"
        return [*lines, [("dim", f"{duration(cell.seconds)}, {tokens}{cost}")]]

    def _call(self, cell: CallCell) -> list[Line]:
        if cell.hidden and cell.state in ("begun", "running", "done"):
            return []
        lines = self.title(cell)
        # A command that was not run has its failure for a result, which stands below.
        printed = cell.command is None or cell.output.count or cell.reason
        shown = cell.output if printed else cell.shown_output()
        if cell.state != "denied" and not cell.files:
            lines += self._quoted(shown.tail(self.tail), shown.count)
        for file in cell.files:
            lines += self._file(file)
        lines += [[("dim", f"  {line}")] for note in cell.notes for line in safe_lines(note)]
        return lines + self._outcome(cell)

    def _question(self, cell: QuestionCell) -> list[Line]:
        lines: list[Line] = []
        verb = "asked" if cell.done else "asks"
        for question in cell.questions:
            header = safe_lines(question.header)[0]
            lines.append([("bold", self.cut(f"The model {verb}: {header}"))])
            lines += [[("", f"  {line}")] for line in safe_lines(question.text)]
            if not cell.done:
                lines += [[("dim", f"  · {safe_lines(label)[0]}")] for label in question.options]
            for answer in shown_answers(cell, question):
                first, *rest = safe_lines(answer)
                lines += [[("green", f"  ✔ {first}")], *([("green", f"    {one}")] for one in rest)]
        return lines if cell.answers else lines + self._outcome(cell)

    def agent_title(self, cell: AgentCell) -> Line:
        """A sub-agent in one line: its mark, its name, its task."""
        style, mark = _AGENTS.get(cell.state, ("dim", "·"))
        facts = [duration(cell.seconds)] if cell.seconds >= 0.05 else []
        facts += [f"{cell.calls} {'call' if cell.calls == 1 else 'calls'}"] if cell.calls else []
        closed = " closed" if cell.state == "shutdown" else ""
        took = f" ({', '.join(facts)})" if cell.done and facts else ""
        task = f": {safe_lines(cell.task.strip())[0]}" if cell.task.strip() else ""
        name = safe_lines(cell.name)[0]
        lead = "  " * cell.depth
        return [("", lead), (style, self.cut(f"{mark} agent {name}{closed}{took}{task}"))]

    def _agent(self, cell: AgentCell) -> list[Line]:
        lead = "  " * (cell.depth + 1)
        text = cell.last.strip() if cell.done else cell.doing
        shown = safe_lines(text) if text else []
        most = self.tail if cell.done else 1
        style = "red" if cell.state == "errored" else "dim"
        lines: list[Line] = [[(style, f"{lead}{self.cut(line, 2)}")] for line in shown[:most]]
        if cell.done and len(shown) > most:
            lines.append([("dim", f"{lead}… {more_lines(len(shown) - most)}")])
        return [self.agent_title(cell), *lines]

    def title(self, cell: CallCell) -> list[Line]:
        """What a call is, in one line; a command as it would be typed, all of it."""
        if cell.command is not None:
            lines = safe_lines(cell.command)
            if len(lines) > _COMMAND_LINES:
                more = len(lines) - _COMMAND_LINES + 1
                lines = [*lines[: _COMMAND_LINES - 1], f"… {more_lines(more)}"]
            return [[("bold", ("$ " if n == 0 else "  ") + line)] for n, line in enumerate(lines)]
        if cell.files and cell.state != "failed":
            return []
        title = safe_lines(call_title(cell.tool, cell.arguments, self.workspace))[0]
        return [[("bold", self.cut(title))]]

    def cut(self, text: str, rows: int = 1) -> str:
        """A text that has no more than so many rows of the terminal; off a terminal, 1,000."""
        most = 1000 if self.width is None else max(20, self.width * rows - 4)
        return text if len(text) <= most else text[: most - 1] + "…"

    def _quoted(self, tail: list[str], count: int) -> list[Line]:
        if not tail:
            return []
        hidden = count - len(tail)
        lines: list[Line] = (
            [[("dim", f"{_INDENT}… {more_lines(hidden)} above")]] if hidden > 0 else []
        )
        return lines + [[("dim", self._indented(safe_lines(line)[0]))] for line in tail]

    def _indented(self, text: str) -> str:
        """A line of output: one that fits the terminal only without the indent stands without.

        Off a terminal programs draw bars of 80 columns.
        """
        fits = self.width is not None and 0 <= self.width - text_width(text) < len(_INDENT)
        return text if fits else f"{_INDENT}{self.cut(text, 2)}"

    def _file(self, file: FileDiff) -> list[Line]:
        path = shorter(file.path, self.workspace)
        if file.moved_to:
            path += f" → {shorter(file.moved_to, self.workspace)}"
        body = diff_lines(file)
        added, removed = counts(body)
        head = [("bold", f"{_KINDS[file.kind]} {safe_lines(path)[0]}")]
        head += [("green", f" +{added}"), ("red", f" -{removed}")]
        more = len(body) - _DIFF_LINES
        if more > 0:
            body = [*body[:_DIFF_LINES], [("dim", f"    … {more_lines(more)}")]]
        return [head, *body]

    def _outcome(self, cell: CallCell) -> list[Line]:
        took = duration(cell.seconds) if cell.seconds >= 0.05 else ""
        where = "outside the sandbox" if cell.left_sandbox else ""
        if cell.state == "denied":
            if cell.reason.startswith("You said no"):
                return [[("yellow", f"  {line}")] for line in safe_lines(cell.reason)]
            head = "" if cell.reason.startswith("Denied: ") else "Denied: "
            return _marked(f"{head}{cell.reason}", "red")
        if cell.is_stopped:
            return [[("dim", "  not run")]] if cell.asked is not None else []
        if cell.state == "failed" and cell.reason:
            return _marked(cell.reason, "red")
        if cell.state == "failed":
            code = f"exit code {cell.exit_code}" if cell.exit_code else "failed"
            return [[("yellow", f"  ✗ {', '.join(filter(None, (code, took, where)))}")]]
        if cell.state == "waiting":
            return [[("yellow", "  waiting for approval")]]
        if cell.state == "done" and cell.exit_code is None and (number := runs_on(cell)):
            going = f"goes on in the background as {number}"
            return [[("cyan", f"  … {', '.join(filter(None, (going, where)))}")]]
        worked = cell.command is not None and cell.exit_code == 0
        if cell.state == "done" and (took or worked):
            return [[("green", f"  ✔ {', '.join(filter(None, (took, where)))}".rstrip())]]
        return [[("dim", f"  {line}")] for line in safe_lines(cell.progress) if line]


def more_lines(count: int) -> str:
    """How many lines are not shown, in words."""
    return f"{count:,} more {'line' if count == 1 else 'lines'}"


def runs_on(cell: CallCell) -> str:
    """The number of a command that goes on in the background; empty when it does not."""
    found = _RUNNING.search(cell.result.partition("\nOutput:")[0]) if cell.command else None
    return found[1] if found else ""


def _marked(text: str, style: str) -> list[Line]:
    first, *rest = safe_lines(text)
    return [[(style, f"  ✗ {first}")], *([(style, f"    {line}")] for line in rest)]


def message_lines(text: str) -> list[str]:
    """Lines of a message: as `safe_lines`, but emoji and scripts with joiners stay whole."""
    return [line.expandtabs(8).rstrip() for line in safe_text(text).split("\n")]


def duration(seconds: float) -> str:
    """Seconds as people say them: 0.4 s, 12 s, 3 min 20 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def dollars(cost: float | None) -> str:
    """A cost as people write it; a dash where it is not known."""
    if cost is None:
        return "–"
    return f"${cost:.4f}" if 0 < cost < 0.1 else f"${cost:,.2f}"


_DRAWINGS: dict[type[Cell], Callable[[Drawing, Any], list[Line]]] = {
    UserCell: Drawing._user,
    MessageCell: Drawing._message,
    ReasoningCell: Drawing._reasoning,
    PlanCell: Drawing._plan,
    NoticeCell: Drawing._notice,
    EndCell: Drawing._end,
    CallCell: Drawing._call,
    QuestionCell: Drawing._question,
    AgentCell: Drawing._agent,
}
