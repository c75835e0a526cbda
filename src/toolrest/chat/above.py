"""What stands above the live part: cells that are over, and the message that is being written."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toolrest.chat.live import LiveState, one_line
from toolrest.timeline.cells import (
    AgentCell,
    CallCell,
    Cell,
    EndCell,
    MessageCell,
    NoticeCell,
    PlanCell,
    ReasoningCell,
    UserCell,
)
from toolrest.timeline.look import Look
from toolrest.timeline.message import MessageRows
from toolrest.timeline.text import safe_lines
from toolrest.timeline.wrap import Line

_WHOLE = 4
"""Calls whose outputs are kept."""
_KINDS = {
    UserCell: "user",
    MessageCell: "message",
    ReasoningCell: "reasoning",
    EndCell: "end",
    NoticeCell: "notice",
}


class Above:
    """Rows that are printed once and stay, apart from each other where they are of two kinds."""

    def __init__(self, live: LiveState, width: Callable[[], int], room: Callable[[], int]) -> None:
        """`room` is how many rows of a message may be live."""
        self._live, self._width, self._room = live, width, room
        self.calls: list[CallCell] = []
        """Calls that have ended, for the pager; only the last few have their outputs."""
        self.waiting: list[Line] = []
        """Rows that are not printed yet."""
        self._message: MessageCell | None = None
        self._rows = MessageRows(0)
        self._placed: set[str] = set()
        """Calls whose change was shown before it was made."""
        self._last, self._was_long = "", False
        """The kind of the last rows, if they are not followed by an empty one already."""

    def changed(self, cell: Cell) -> None:
        """Take a cell, or what is new of it."""
        live = self._live
        if cell is not self._message:
            self.draw_message()
        if isinstance(cell, MessageCell):
            self._begin_message(cell)
        elif isinstance(cell, ReasoningCell):
            live.reasoning = None if cell.done else cell
            if cell.done and cell.text.strip():
                self._cell(cell)
        elif isinstance(cell, CallCell):
            self._call(cell)
        elif isinstance(cell, AgentCell):
            self._agent(cell)
        elif isinstance(cell, PlanCell):
            live.plan = cell
            for plan in live.settled_plan():
                self._cell(plan)
        else:
            if isinstance(cell, EndCell):
                self._close_open()
            self._cell(cell)

    def _close_open(self) -> None:
        """Put what a turn leaves unfinished above the live part."""
        for cell in [*self._live.running]:
            self._call(cell)
        if self._message is not None:
            self._message.done = True
            self.draw_message()
        for plan in self._live.settled_plan(is_last=True):
            self._cell(plan)

    def _call(self, cell: CallCell) -> None:
        running = self._live.running
        at = next((n for n, one in enumerate(running) if one.call_id == cell.call_id), None)
        if not cell.done:
            if at is None:
                running.append(cell)
            else:
                running[at] = cell
            return
        if at is not None:
            running.pop(at)
        self.calls.append(cell)
        self._cell(cell)
        for old in self.calls[-_WHOLE - 1 : -_WHOLE]:
            old.forget_output()

    def _agent(self, cell: AgentCell) -> None:
        agents = self._live.agents
        if cell in agents:
            agents.remove(cell)
        if cell.done:
            self._cell(cell)
        else:
            agents.append(cell)

    def _begin_message(self, cell: MessageCell) -> None:
        """Take a message, or what is new of one: it is drawn with the next frame."""
        if cell is not self._message:
            self._message, self._rows = cell, MessageRows(self._width())
            self._part("message")
        if cell.done:
            self.draw_message()

    def draw_message(self) -> None:
        """Put what is final of a message above the live part, the rest stays in it."""
        cell = self._message
        if cell is None:
            return
        self._rows.resize(self._width())
        self.waiting += self._rows.advance(cell.text, done=cell.done, room=self._room())
        self._live.rows = self._rows.live
        if cell.done:
            self._message = None

    def _cell(self, cell: Cell) -> None:
        width = self._width()
        look = Look(width, self._live.workspace)
        look.diffs = not (isinstance(cell, CallCell) and cell.call_id in self._placed)
        lines = look.lines(cell)
        if isinstance(cell, ReasoningCell):
            lines = [one_line(lines, width)]
        changes = isinstance(cell, CallCell) and bool(cell.files)
        self._put("change" if changes else _KINDS.get(type(cell), "call"), lines)

    def place(self, call_id: str, lines: list[Line]) -> None:
        """Put what a person is asked about; it is not shown again when it is done."""
        self.draw_message()
        self._put("asked", lines)
        self._placed.add(call_id)

    def say(self, text: str, style: str) -> None:
        """Put lines of our own."""
        self.draw_message()
        self._put("said", [[(style, line)] for line in safe_lines(text)])
        if not text:
            self._last = ""

    def start(self, lines: Iterable[Line]) -> None:
        """Put the first lines of a chat."""
        self._put("start", [*lines])

    def ends_part(self) -> None:
        """Set what comes next apart, whatever it is."""
        self._last = self._last and "part"

    def cleared(self) -> None:
        """Nothing stands above any more."""
        self._last = ""

    def _put(self, kind: str, lines: list[Line]) -> None:
        if lines:
            self._part(kind)
            self.waiting += lines
            self._was_long = len(lines) > 1

    def _part(self, kind: str) -> None:
        """Keep rows of two kinds apart, and calls that have more than one row."""
        last, self._last = self._last, kind
        together = last == kind and kind in ("notice", "said")
        together = together or (last == kind == "call" and not self._was_long)
        if last and not together and (kind, last) != ("end", "message"):
            self.waiting.append([])
