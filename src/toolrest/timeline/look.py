"""The drawing of cells for a person at a terminal: one line where one is enough.

Rows are wrapped between words, at the indent of what they belong to. Two columns are ours: no
text of others begins in them.
"""

from __future__ import annotations

from msgspec import Struct

from toolrest.timeline.calls import arguments_of, call_title, shorter
from toolrest.timeline.cells import (
    TAIL,
    CallCell,
    Cell,
    EndCell,
    FileDiff,
    MessageCell,
    NoticeCell,
    QuestionCell,
    ReasoningCell,
    UserCell,
)
from toolrest.timeline.draw import Drawing, dollars, duration, message_lines, more_lines, runs_on
from toolrest.timeline.draw_diff import counts, diff_lines
from toolrest.timeline.highlight import highlighted
from toolrest.timeline.message import MessageRows
from toolrest.timeline.text import safe_lines
from toolrest.timeline.wrap import Line, broken, drawn_width, hung, plain_text, wrapped

_INDENT: Line = [("", "  ")]
_VERB = 7
"""Columns of a verb and the blank behind it: what follows stands in one column."""
MARGIN = 2 + _VERB
"""Columns before a command and its output."""
_VERBS = {"read": "Read", "search": "Searched", "edit": "Edited", "fetch": "Fetched"}
_QUIET = ("read", "search")
"""Icons of calls whose results nobody but the model reads."""
_FILES = {"add": "Added", "delete": "Deleted", "update": "Edited"}
_LEVELS = {"note": ("dim", ""), "warning": ("yellow", "! "), "error": ("red", "✗ ")}
_COMMAND_LINES = 12
_DIFF_LINES = 60
_LONG = 8
"""Rows of one line of output that are shown."""


class Look(Struct):
    """How to draw: the columns, the folder that paths are relative to."""

    width: int
    workspace: str = ""
    is_live: bool = False
    """Of a call that runs: its changes are not shown yet."""
    diffs: bool = True

    def lines(self, cell: Cell) -> list[Line]:
        """The rows of a cell; none where there is nothing to show."""
        match cell:
            case UserCell():
                texts: list[Line] = [[("user", line)] for line in message_lines(cell.text)]
                return self._hung(texts, [("user mark", "> ")])
            case MessageCell():
                return MessageRows(self.width).advance(cell.text, done=True)
            case ReasoningCell():
                return [[("italic", f"  {line}")] for line in safe_lines(cell.text.strip())]
            case NoticeCell():
                return self._notice(cell)
            case EndCell():
                return self._end(cell)
            case QuestionCell():
                return self._drawn(cell)
            case CallCell():
                return self._call(cell)
        return self._drawn(cell)

    def _drawn(self, cell: Cell) -> list[Line]:
        return self._hung(Drawing(self.width - 2, self.workspace).lines(cell))

    def _hung(self, lines: list[Line], first: Line | None = None, hang: int = 2) -> list[Line]:
        """Lines in rows that fit: the first behind `first`, all others at the hanging indent.

        A line that is indented itself goes on at its own indent.
        """
        width = max(self.width - 1, 8)
        hang = hang if hang <= width // 3 else 2
        found: list[Line] = []
        for line in lines:
            lead = [("", " " * hang)] if found or first is None else first
            text = plain_text(line)
            inner = hang + len(text) - len(text.lstrip())
            inner = inner if inner <= width // 2 else hang
            first_row, *others = wrapped([*lead, *line], width, max(width - inner, 1))
            indent: Line = [("", " " * inner)]
            found += [first_row, *hung(others, indent, indent)]
        return found

    def _notice(self, cell: NoticeCell) -> list[Line]:
        style, mark = _LEVELS.get(cell.level, ("red", ""))
        hang = 2 + len(mark)
        found = self._hung(_styled(style, cell.text), [(style, f"  {mark}")], hang)
        detail = _styled("dim", cell.detail)
        more: list[Line] = [[("dim", f"… {more_lines(len(detail) - TAIL)}")]]
        return found + self._hung(detail[:TAIL] + more * (len(detail) > TAIL), None, hang)

    def _end(self, cell: EndCell) -> list[Line]:
        found: list[Line] = []
        is_stopped = cell.reason == "interrupted"
        if cell.status != "completed" and not is_stopped:
            text = ": ".join(filter(None, (cell.status, cell.error)))
            found = self._notice(NoticeCell(level="error", text=text))
        took = duration(max(cell.seconds, 0.1) if cell.seconds < 1 else round(cell.seconds))
        took = took.replace(".0 s", " s")
        facts = [f"stopped after {took}" if is_stopped else f"Worked for {took}"]
        for count, name in ((cell.commands, "command"), (cell.files, "file")):
            if count:
                plural = "" if count == 1 else "s"
                facts.append(f"{count} {name}{plural}{' changed' if name == 'file' else ''}")
        if cell.cost is not None:
            facts.append(f"${cell.cost:.2f}" if cell.cost >= 0.01 else dollars(cell.cost))
        return [*found, *self._hung([[("dim", " · ".join(facts))]])]

    # Calls

    def _call(self, cell: CallCell) -> list[Line]:
        if cell.hidden and cell.state in ("begun", "running", "done"):
            return []
        found: list[Line] = []
        if cell.files and cell.state != "failed":
            for file in cell.files:
                found += [[]] if len(found) > 1 else []
                found += self._file(file)
        else:
            found = self._title(cell)
            found += [] if cell.state == "denied" else self._output(cell)
        found += self._below([[("dim", line)] for note in cell.notes for line in safe_lines(note)])
        return found + self._outcome(cell)

    def _title(self, cell: CallCell) -> list[Line]:
        """What a call is: a verb, and what it is about; what came of it at the right border."""
        if cell.command is not None:
            lines = safe_lines(cell.command)
            more = len(lines) - _COMMAND_LINES + 1
            texts = highlighted(lines, "bash")
            if more > 1:
                texts = [*texts[: _COMMAND_LINES - 1], [("dim", f"… {more_lines(more)}")]]
            was_run = cell.state != "denied" and cell.asked is None
            verb = "Run" if not cell.done else "Ran" if was_run else "Not run"
        else:
            verb = _VERBS.get(cell.icon, cell.tool)
            style = "blue" if cell.icon in _VERBS else ""
            texts = [[(style, safe_lines(_about(cell, self.workspace))[0])]]
        verb = safe_lines(verb)[0]
        facts = self._facts(cell)
        size = drawn_width(plain_text(facts))
        rows = self._hung(texts, _lead(verb), MARGIN)
        if not facts:
            return rows
        room = self.width - 1 - size - 2
        if drawn_width(plain_text(rows[0])) > room > self.width // 2:
            rows = Look(room + 1)._hung(texts, _lead(verb), MARGIN)
        if (gap := self.width - 1 - size - drawn_width(plain_text(rows[0]))) < 2:
            return [*rows, *self._below([facts])]
        return [[*rows[0], ("", " " * gap), *facts], *rows[1:]]

    def _facts(self, cell: CallCell) -> Line:
        """The exit code, the seconds, and where it ran if that was not the sandbox."""
        parts: list[tuple[str, str]] = []
        if cell.left_sandbox and cell.done and cell.state != "denied":
            parts.append(("yellow", "outside the sandbox"))
        if cell.state == "done" and cell.exit_code is None and (number := runs_on(cell)):
            parts.append(("cyan", f"goes on in the background as {number}"))
        elif cell.is_stopped:
            parts.append(("dim", "stopped"))
        elif cell.state == "failed" and not cell.reason:
            parts.append(("red", f"exit {cell.exit_code}" if cell.exit_code else "failed"))
        took = cell.state in ("done", "failed") and cell.seconds >= 0.05 and not cell.is_stopped
        if took:
            parts.append(("dim", duration(cell.seconds)))
        found: Line = []
        for part in parts:
            found += [("dim", " · "), part] if found else [part]
        return found

    def _output(self, cell: CallCell) -> list[Line]:
        """The end of what it printed; all of it is a key away."""
        # A command that was not run has its failure for a result, which stands below.
        printed = cell.command is None or cell.output.count or cell.reason or runs_on(cell)
        if cell.icon in _QUIET and cell.command is None:
            return []
        shown = cell.output if printed else cell.shown_output()
        tail = shown.tail(TAIL)
        hidden = shown.count - len(tail)
        lines: list[Line] = []
        if tail and hidden > 0:
            key = " (Ctrl-O shows all)" if cell.done else ""
            lines.append([("dim", f"… {more_lines(hidden)}{key}")])
        texts = [safe_lines(text[: self.width * _LONG])[0] for text in tail]
        return self._quoted(lines, texts)

    def _quoted(self, head: list[Line], texts: list[str]) -> list[Line]:
        """Lines of output; one that fits the terminal only without an indent stands without."""
        room = self.width - 1
        margin = MARGIN if room >= 3 * MARGIN else 2
        indent: Line = [("", " " * margin)]
        found = hung(head, indent, indent)
        for text in (_shorter_rule(text, room - margin) for text in texts):
            if not self.is_live and room - 2 < drawn_width(text) <= self.width:
                found.append([("dim", text)])
                continue
            rows = wrapped([("dim", text)], max(room - margin, 1))
            found += hung(rows[: 1 if self.is_live else _LONG], indent, indent)
        return found

    def _file(self, file: FileDiff) -> list[Line]:
        path = shorter(file.path, self.workspace)
        if file.moved_to:
            path += f" → {shorter(file.moved_to, self.workspace)}"
        body = diff_lines(file)
        added, removed = counts(body)
        verb = "Moved" if file.moved_to and not body else _FILES[file.kind]
        sums: Line = [("green", f"  +{added}")] if added else []
        sums += [("red", f"  −{removed}" if not added else f" −{removed}")] if removed else []
        head = self._hung([[("blue", safe_lines(path)[0]), *sums]], _lead(verb), MARGIN)
        if self.is_live or not self.diffs:
            return head
        more = len(body) - _DIFF_LINES
        if more > 0:
            body = [*body[:_DIFF_LINES], [("dim", f"    … {more_lines(more)}")]]
        for line in body:
            number, rest = line[:1], line[1:]
            rows = broken(rest, max(self.width - 2 - len(number[0][1]), 1))
            head += hung(rows, number, [("", " " * len(number[0][1]) + " ")])
        return head

    def _below(self, lines: list[Line]) -> list[Line]:
        return self._hung(lines, None, MARGIN)

    def _outcome(self, cell: CallCell) -> list[Line]:
        """Why it was not done, and what it says of itself."""
        if cell.is_stopped:
            return []
        if cell.state == "denied":
            return self._below(_styled("red", denial(cell)))
        if cell.state == "failed" and cell.reason:
            return self._below(_styled("red", cell.reason))
        if cell.state == "waiting":
            return self._below(_styled("yellow", "waiting for approval"))
        return [] if cell.done else self._below(_styled("dim", cell.progress))


def _lead(verb: str) -> Line:
    return [("", "  "), ("bold", f"{verb:<{_VERB - 1}} ")]


def _shorter_rule(text: str, room: int) -> str:
    """A line that ends in a rule, which programs draw for 80 columns, with less of the rule."""
    end = text.rstrip(text[-1:])
    is_rule = len(text) - len(end) > len(text) - room > 0 and not text[-1].isalnum()
    return text[:room] if is_rule else text


def _about(cell: CallCell, workspace: str) -> str:
    """What a call is about; of a file that is read in part, which lines."""
    values = arguments_of(cell.arguments)
    path, first, count = (values.get(name) for name in ("file_path", "offset", "limit"))
    if cell.icon == "read" and isinstance(path, str) and isinstance(first or count, int):
        first = first if isinstance(first, int) else 1
        last = f"-{first + count - 1}" if isinstance(count, int) else "-"
        return f"{shorter(path, workspace)}:{first}{last}"
    return call_title(cell.tool, cell.arguments, workspace).partition(" ")[2]


def denial(cell: CallCell) -> str:
    """Why a call was denied, in words for a person."""
    if cell.reason.startswith(("You said no", "Denied: ")):
        return cell.reason
    said, _, why = cell.reason.partition(":")  # of an earlier release
    if said.endswith("rejected by user"):
        return f'You said no: "{why.strip()}"' if why.strip() else "You said no"
    if said.startswith("rejected by user"):
        return "You said no, and stopped the turn"
    return f"Denied: {cell.reason}"


def _styled(style: str, text: str) -> list[Line]:
    return [[(style, line)] for line in safe_lines(text) if line]
