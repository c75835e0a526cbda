"""The plain drawing of a session: cells printed one after the other, nothing drawn twice."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from toolrest.timeline.cells import CallCell, Cell, EndCell, MessageCell, UserCell
from toolrest.timeline.draw import STYLES, Drawing, Line
from toolrest.timeline.fold import Timeline

if TYPE_CHECKING:
    from toolrest.events import Event


_MARK = re.compile("^( *)([✔✗▸·])", re.MULTILINE)
_WORDS = {"✔": "done:", "✗": "failed:", "▸": "now:", "·": "later:"}


class PlainPrinter:
    """A listener that prints cells as they end, by default to stderr.

    The last message is held back when `keeps_answer`: it is the answer, and the caller prints it.
    While it is `paused` (a question stands on the terminal) nothing is printed. With `words`
    marks are words, for screen readers.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        *,
        workspace: str = "",
        keeps_answer: bool = True,
        words: bool = False,
    ) -> None:
        self._out: TextIO | None = out if out is not None else sys.stderr  # None: closed at start
        self._timeline = Timeline()
        self._drawing = Drawing(columns(self._out), workspace)
        self._colour = has_colour(self._out) and not words
        self._words = words
        self._keeps_answer = keeps_answer
        self._held: MessageCell | None = None
        self._open: CallCell | None = None
        self._announced: CallCell | None = None
        """The call whose first line is the last that was printed."""
        self._paused = 0
        self._waiting: list[Line] = []

    def __call__(self, event: Event) -> None:
        """Take an event."""
        cell = self._timeline.feed(event)
        if cell is None or isinstance(cell, UserCell):
            return
        if self._held is not None and self._held is not cell:
            self._give_message(cell)
        if isinstance(cell, MessageCell):
            self._held = cell if cell.done else None
        elif isinstance(cell, CallCell):
            self._call(cell)
        elif cell.done:
            self._print(self._drawing.lines(cell))

    def _give_message(self, cell: Cell) -> None:
        """Print the message that was held back, unless it is the answer."""
        is_answer = isinstance(cell, EndCell) and cell.status == "completed"
        if self._held is not None and not (is_answer and self._keeps_answer):
            self._print(self._drawing.lines(self._held))
        self._held = None

    def _call(self, cell: CallCell) -> None:
        if not cell.done:
            # One command at a time is announced; the others show when they end.
            starts = cell.command is not None and cell.state == "running" and self._open is None
            if starts:
                self._print(self._drawing.title(cell))
                self._open = self._announced = cell
            return
        lines = self._drawing.lines(cell)
        if self._announced is cell:
            lines = lines[len(self._drawing.title(cell)) :]
        self._print(lines)
        self._open = None if self._open is cell else self._open

    def say(self, text: str, style: str = "dim") -> None:
        """Print a line of our own."""
        self._print([[(style, text)]])

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Print nothing meanwhile; what comes is printed afterwards."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1
            if not self._paused:
                lines, self._waiting = self._waiting, []
                self._print(lines)

    def _print(self, lines: Iterable[Line]) -> None:
        lines = list(lines)
        if lines:
            self._announced = None
        if self._paused:
            self._waiting += lines
            return
        text = "".join(styled(line, self._colour) + "\n" for line in lines)
        if self._words:
            text = _MARK.sub(lambda found: found[1] + _WORDS[found[2]], text)
        # A reader that has seen enough closes the pipe; the work goes on.
        with suppress(BrokenPipeError, ValueError):
            if self._out is not None:
                self._out.write(text)
                self._out.flush()


def styled(line: Line, colour: bool, codes: Mapping[str, str] = STYLES) -> str:
    """A line as text, with the ANSI codes of its styles where there is colour."""
    if not colour:
        return "".join(text for _, text in line).rstrip()
    return "".join(f"\x1b[{codes[style]}m{text}\x1b[0m" if style else text for style, text in line)


def has_colour(out: TextIO | None) -> bool:
    """Whether to write colours: on a terminal, unless NO_COLOR or TERM=dumb say otherwise."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return columns(out) is not None


def columns(out: TextIO | None) -> int | None:
    """The width of the terminal; None where `out` is none."""
    try:
        if out is None or not out.isatty():
            return None
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return None
