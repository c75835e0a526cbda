"""A list to pick from, in the live part: arrows move, Enter takes, Esc leaves."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from toolrest.timeline.draw import Line
from toolrest.timeline.text import safe_lines, shown

_ROWS = 10


class Picker(Struct, eq=False):
    """Rows of which one is marked; `take` is called with the number of the one that is taken."""

    title: str
    rows: list[str]
    take: Callable[[int], None]
    at: int = 0
    preview: Callable[[int], str] | None = None
    """More about a row, shown while it is marked."""

    def move(self, step: int) -> None:
        """Mark another row."""
        self.at = min(max(self.at + step, 0), len(self.rows) - 1)

    def lines(self, room: int) -> list[Line]:
        """The title and the rows around the marked one, at most `room` lines."""
        more = shown(self.preview(self.at)) if self.preview is not None and room > 4 else ""
        most = max(1, min(_ROWS, room - 1 - bool(more)))
        start = max(0, min(self.at - most // 2, len(self.rows) - most))
        found: list[Line] = [[("yellow", self.title)]] if room > 1 else []
        for number, row in enumerate(self.rows[start : start + most], start):
            text = safe_lines(" ".join(row.split("\n")))[0]
            marked = number == self.at
            found.append([("bold" if marked else "dim", f"{'›' if marked else ' '} {text}")])
        return [*found, [("italic", f"  … {more}")]] if more else found
