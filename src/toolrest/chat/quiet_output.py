"""A terminal output that does not flicker: everything that belongs together is one write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that know it show all of an update at once."""


class QuietOutput(Vt100_Output):
    """prompt_toolkit's output in synchronized updates.

    Rows are erased one by one: terminals move what is erased from the top left on into their
    scrollback.
    """

    _held = 0

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
        self.write_raw("\x1b7\x1b[K\x1b[1B\r\x1b[J\x1b8")

    def flush(self) -> None:
        """Write what is buffered, as one update."""
        if self._held or not self._buffer:
            return
        self._buffer.insert(0, _BEGIN)
        self._buffer.append(_END)
        super().flush()


def quiet_output(out: TextIO) -> QuietOutput:
    """The output for a terminal. It is not asked where the cursor is: the answer could be late."""
    made: Any = QuietOutput.from_pty(out)
    return QuietOutput(
        out,
        lambda: _size(made),
        term=made.term,
        default_color_depth=made.default_color_depth,
        enable_cpr=False,
    )


def _size(made: Vt100_Output) -> Size:
    size = made.get_size()
    return Size(rows=max(size.rows, 2), columns=max(size.columns, 10))
