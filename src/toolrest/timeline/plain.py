"""The plain drawing of a session: cells printed one after the other, nothing drawn twice."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from toolrest.timeline.cells import AgentCell, CallCell, Cell, EndCell, MessageCell, UserCell
from toolrest.timeline.draw import STYLES, Drawing, Line, duration, safe_lines
from toolrest.timeline.fold import Timeline
from toolrest.timeline.text import rows_of

if TYPE_CHECKING:
    from toolrest.events import Event


_MARK = re.compile("^( *)([✔✗▸·])", re.MULTILINE)
_WORDS = {"✔": "done:", "✗": "failed:", "▸": "now:", "·": "later:"}
_PATIENCE = 1.0
_TICK = 0.5
_INDENT = "  "
_ERASE = "\r\x1b[K"


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
        self._running: list[CallCell] = []
        self._agents: set[str] = set()
        """Sub-agents at work whose beginning was printed."""
        self._printed = monotonic()
        self._has_status = False
        """The last line on the terminal is one that the next replaces."""

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
        elif isinstance(cell, AgentCell) and not cell.done:
            if cell.agent_id not in self._agents:
                self._agents.add(cell.agent_id)
                self._print([self._drawing.agent_title(cell)])
        elif cell.done:
            self._agents -= {cell.agent_id} if isinstance(cell, AgentCell) else set()
            self._print(self._drawing.lines(cell))

    def _give_message(self, cell: Cell) -> None:
        """Print the message that was held back, unless it is the answer."""
        is_answer = isinstance(cell, EndCell) and cell.status == "completed"
        if self._held is not None and not (is_answer and self._keeps_answer):
            self._print(self._said(self._held))
        self._held = None

    def _said(self, cell: MessageCell) -> Iterator[Line]:
        """A message, indented, so that nothing in it stands where our own questions begin.

        On a terminal it is wrapped too, which would else go on at the first column.
        """
        width = columns(self._out)
        for line in self._drawing.lines(cell):
            text = "".join(part for _, part in line)
            for row in rows_of(text, max(width - len(_INDENT) - 1, 1)) if width else [text]:
                yield [("", f"{_INDENT}{row}" if row else "")]

    def _call(self, cell: CallCell) -> None:
        self._running = [other for other in self._running if other.call_id != cell.call_id]
        if not cell.done:
            self._running.append(cell)
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
        self._print_text("")
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
        self._printed = monotonic() if lines else self._printed
        text = "".join(styled(line, self._colour) + "\n" for line in lines)
        if self._words:
            text = _MARK.sub(lambda found: found[1] + _WORDS[found[2]], text)
        self._print_text(text)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """At a terminal, show what takes longer than a second, in a line that the next replaces."""
        is_terminal = columns(self._out) is not None and os.environ.get("TERM") != "dumb"
        ticking = asyncio.ensure_future(self._tick()) if is_terminal and not self._words else None
        try:
            yield
        finally:
            if ticking is not None:
                ticking.cancel()
            self._print_text("")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            seconds = monotonic() - self._printed
            if seconds >= _PATIENCE and not self._paused:
                took = f"{seconds:.0f} s" if seconds < 60 else duration(seconds)
                width = columns(self._out) or 80
                line = rows_of(f"  … {took}: {self._doing()}", width - 1)[0]
                self._print_text(styled([("dim", line)], self._colour))
                self._has_status = True

    def _doing(self) -> str:
        if not self._running:
            return "the model works"
        cell = self._running[0]
        if cell.state == "waiting":
            return f"{cell.tool} waits for approval"
        last = "".join(cell.output.tail(1)).strip()
        return f"{cell.tool} runs" + (f": {safe_lines(last)[0]}" if last else "")

    def _print_text(self, text: str) -> None:
        if self._has_status:
            text, self._has_status = _ERASE + text, False
        # A reader that has seen enough closes the pipe; the work goes on.
        with suppress(BrokenPipeError, ValueError):
            if self._out is not None:
                self._out.write(text)
                self._out.flush()


def styled(line: Line, colour: bool, codes: Mapping[str, str] = STYLES) -> str:
    """A line as text, with the ANSI codes of its styles where there is colour."""
    if not colour:
        return "".join(text for _, text in line).rstrip()
    return "".join(_styled(style, text, codes) for style, text in line)


def _styled(style: str, text: str, codes: Mapping[str, str]) -> str:
    """A text in a style; where it is a link, terminals that know OSC 8 open its address."""
    if not style:
        return text
    words = style.split()
    is_link = "link" in words
    code = ";".join(codes[word] for word in (words[:-1] if is_link else words))
    text = f"\x1b[{code}m{text}\x1b[0m"
    return f"\x1b]8;;{words[-1]}\x1b\\{text}\x1b]8;;\x1b\\" if is_link else text


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
