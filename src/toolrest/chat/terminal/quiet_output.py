"""A terminal output that does not flicker, and an application that resizes cleanly on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.layout.screen import Screen
from prompt_toolkit.output.vt100 import Vt100_Output

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that know it show all of an update at once."""


class QuietOutput(Vt100_Output):
    """prompt_toolkit's output in synchronized updates.

    Rows are erased one by one: terminals move what is erased from the top left on into their
    scrollback.
    """

    _held = 0
    longest: dict[int, int]
    """The columns of each row at its longest since the rows were erased."""
    is_clean = False
    """Nothing is on the screen from the cursor on: the next erasing has nothing to do."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write what is flushed meanwhile in one piece at the end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self.flush()

    def erase_down(self) -> None:
        """Erase from the cursor on: this row, and those below it."""
        if not self.is_clean:
            self.write_raw("\x1b7\x1b[K\x1b[1B\r\x1b[J\x1b8")
        self.is_clean = False
        self.longest = {}

    def flush(self) -> None:
        """Write what is buffered, as one update."""
        if self._held or not self._buffer:
            return
        self._buffer.insert(0, _BEGIN)
        self._buffer.append(_END)
        super().flush()


class InlineApplication(Application[None]):
    """An application below the terminal's own text, which may be wrapped anew on a resize."""

    output: QuietOutput

    def _redraw(self, render_as_done: bool = False) -> None:
        """Draw a frame in one piece, with what is written before it.

        The terminal may have another size already, though its signal is still on the way.
        """
        drawn = self.renderer._last_size
        with self.output.together():
            if drawn is not None and drawn != self.output.get_size():
                self._on_resize()
            super()._redraw(render_as_done)
        if (screen := self.renderer._last_screen) is not None and "TMUX" in os.environ:
            longest = self.output.longest
            for row in range(screen.height):
                longest[row] = max(longest.get(row, 0), _width(screen, row))

    def _on_resize(self) -> None:
        """Find the first row of what was drawn where the terminal has put it, and draw again."""
        if self._running_in_terminal:
            return  # another program draws
        renderer = self.renderer
        drawn, cursor = renderer._last_screen, renderer._cursor_pos
        columns = self.output.get_size().columns
        if drawn is not None and _wraps_anew(os.environ):
            # tmux wraps what was erased at the end of a row as well.
            widths = (
                max(_width(drawn, row), self.output.longest.get(row, 0)) for row in range(cursor.y)
            )
            above = sum(-(-max(width, 1) // columns) for width in widths)
            renderer._cursor_pos = Point(x=columns, y=above + cursor.x // columns)
        with self.output.together():
            super()._on_resize()


def _width(screen: Screen, row: int) -> int:
    """The columns of a row that was drawn."""
    used = (x + char.width for x, char in screen.data_buffer[row].items() if char.char != " ")
    return max(used, default=0)


_WRAPPING = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "WEZTERM_PANE", "TERM_PROGRAM")


def _wraps_anew(env: Mapping[str, str]) -> bool:
    """Whether the terminal wraps its lines anew when its width changes; xterm cuts them."""
    return any(env.get(name) for name in _WRAPPING)


def notification(env: Mapping[str, str]) -> str:
    """What makes the terminal notify its user: OSC 777 where that is the known one, else OSC 9."""
    if env.get("VTE_VERSION") or env.get("TERM", "").startswith(("rxvt", "foot")):
        return "\x1b]777;notify;toolrest;waits for you\x07"
    return "\x1b]9;toolrest waits for you\x07"


def quiet_output(out: TextIO) -> QuietOutput:
    """The output for a terminal. It is not asked where the cursor is: the answer could be late."""
    made: Any = QuietOutput.from_pty(out)
    quiet = QuietOutput(
        out,
        lambda: _size(made),
        term=made.term,
        default_color_depth=made.default_color_depth,
        enable_cpr=False,
    )
    quiet.longest = {}
    return quiet


def _size(made: Vt100_Output) -> Size:
    size = made.get_size()
    return Size(rows=max(size.rows, 2), columns=max(size.columns, 10))
