"""A message of the model as it streams in: rows that are final, and rows that may still change.

A row that was handed out as final never changes. All blocks but the last are final; of code that
is under way the whole lines are; and what would not fit the screen any more is, as it stands.
"""

from __future__ import annotations

import re
from itertools import takewhile

from toolrest.timeline.blocks import Code, Paragraph, Placed, Table, read_blocks
from toolrest.timeline.draw_blocks import (
    Widths,
    block_lines,
    code_rows,
    paragraph_rows,
    table_rows,
    table_widths,
)
from toolrest.timeline.wrap import Line, broken, plain_text

_FIRST: Line = [("dim", "● ")]
_REST: Line = [("", "  ")]
_LONGEST = 50_000
"""Letters of a block that are read again with each piece; a longer one is cut at a line's end."""
_LIVE = 6
"""Rows of a paragraph or a list that stay live; all rows of a table do, for its widths."""
_NARROWEST = 10
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class MessageRows:
    """The rows of one message, in a terminal of this width."""

    def __init__(self, width: int) -> None:
        self._width = max(width - 3, _NARROWEST)
        self.live: list[Line] = []
        """The rows that may still change, as they are now."""
        self._lead = _FIRST
        self._gap = False
        """Whether an empty row comes before the next one."""
        self._start = 0
        """Where in the text the first block begins that is not final."""
        self._without_cr = 0
        """Letters at the beginning that are known to hold no carriage return."""
        self._fence = ""
        """The fence of code that was cut at `_start`."""
        self._printed: list[Line] = []
        """The rows of the block at `_start` that are final."""
        self._is_resized = False
        """Whether rows of that block were drawn in another width."""
        self._widths: tuple[Widths] | None = None
        """Those of the table at `_start`, once rows of it are final."""

    def resize(self, width: int) -> None:
        """Draw what is to come in this width."""
        width = max(width - 3, _NARROWEST)
        self._is_resized = self._is_resized or (width != self._width and bool(self._printed))
        self._width = width

    def advance(self, text: str, *, done: bool = False, room: int | None = None) -> list[Line]:
        """Take the message so far and return the rows that are final now.

        With `room` no more rows than that are left in `live`.
        """
        if text.find("\r", self._without_cr) >= 0:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        else:
            self._without_cr = len(text)
        final = self._read(text, room, done=done)
        if len(text) - self._start > _LONGEST and not done:
            end = text.rfind("\n", self._start) + 1 or len(text)
            fence = _open_fence(self._fence + text[self._start : end])
            final += self._read(text[:end], None, done=True)
            self._start, self._fence, self._gap = end, fence, False
            final += self._read(text, room, done=False)
        return final

    def _read(self, text: str, room: int | None, *, done: bool) -> list[Line]:
        final: list[Line] = []
        self.live = []
        placed = read_blocks(self._fence + text[self._start :])
        over = len(placed) if done else self._over(placed, text)
        for each in placed[:over]:
            final += self._handed_out(self._left(self._rows(each), each))
            self._printed, self._widths, self._gap, self._is_resized = [], None, True, False
        if len(placed) > over:
            final += self._open(placed[over], placed[over + 1 :], text, room)
        return final

    def _over(self, placed: list[Placed], text: str) -> int:
        """How many blocks no later text can change.

        A line that is not whole may yet be part of the block before it: `#` becomes `#1`, and
        `3` the mark of a list's next item.
        """
        lines = self._fence.count("\n") + text.count("\n", self._start)
        end = text.rfind("\n", max(self._start - 1, 0))
        is_apart = text[max(end - 1, 0) : end] == "\n" and not text[end + 1 :].strip().isdigit()
        begun = placed and placed[-1].line == lines and not is_apart
        return max(len(placed) - (2 if begun else 1), 0)

    def _open(
        self, placed: Placed, others: list[Placed], text: str, room: int | None
    ) -> list[Line]:
        """The rows that are final of the block that is not over; the rest is live."""
        rows = self._rows(placed)
        left = self._left(rows, placed)
        self._go_to(text, placed.line)
        behind = [row for other in others for row in ([], *self._rows(other))]
        before = len(rows) - len(left)
        most = None if room is None else max(room - len(behind) - self._gap, 1)
        count = self._final(placed, text, before, len(left), most)
        final = self._handed_out(left[:count])
        self._printed = rows[: before + count] if count else self._printed
        self.live = self._led([*left[count:], *behind])
        if count and isinstance(placed.block, Paragraph) and not others:
            self._pass_lines(placed.block, text)
        return final

    def _pass_lines(self, paragraph: Paragraph, text: str) -> None:
        """Leave out the lines of a paragraph that are final: what is behind them stands alone."""
        rows = paragraph_rows(paragraph, self._width)
        if len(rows) != text.count("\n", self._start) + 1:
            return  # a line's end in code is a blank
        for lines in rows[:-1]:
            if len(lines) > len(self._printed):
                break
            self._start = text.index("\n", self._start) + 1
            self._printed = self._printed[len(lines) :]

    def _go_to(self, text: str, line: int) -> None:
        """Begin at this line of what was read."""
        if line:
            for _ in range(line - self._fence.count("\n")):
                self._start = text.index("\n", self._start) + 1
            self._fence = ""

    def _rows(self, placed: Placed) -> list[Line]:
        if isinstance(table := placed.block, Table):
            (widths,) = self._widths or (table_widths(table, self._width),)
            return table_rows(table, widths, self._width)
        rows = block_lines([placed.block], self._width)
        # Deep in lists and quotes they are too wide; the terminal's break is in the first column.
        return [part for row in rows for part in broken(row, self._width) or [row]]

    def _left(self, rows: list[Line], placed: Placed) -> list[Line]:
        """The rows that were not handed out, though others may have changed since they were."""
        count = len(self._printed)
        if isinstance(placed.block, Code) and not self._is_resized:
            return rows[count:]
        if _texts(rows[:count]) == _texts(self._printed):
            return rows[count:]
        letters, at = _shared(_letters_of(self._printed), _letters_of(rows)), 0
        bare = sum(1 for _ in takewhile(lambda row: not _letters(row), reversed(self._printed)))
        while letters and at < len(rows):
            here = _letters(rows[at])
            if here > letters:
                return [_behind(rows[at], letters), *rows[at + 1 :]]
            letters -= here
            at += 1
        while bare and at < len(rows) and not _letters(rows[at]):
            bare, at = bare - 1, at + 1
        return rows[at:]

    def _final(self, placed: Placed, text: str, before: int, left: int, most: int | None) -> int:
        """How many of the rows that are left of an open block are final; `most` may be live."""
        count = 0
        if isinstance(code := placed.block, Code) and (lines := self._whole_lines(text)):
            count = sum(map(len, code_rows(code, self._width)[:lines])) - before
        if most is not None and not isinstance(placed.block, Table):
            most = min(most, _LIVE)
        if most is not None and left - count > most:
            count = left - max(most // 3, 1)
            if isinstance(placed.block, Table) and self._widths is None:
                self._widths = (table_widths(placed.block, self._width),)
        return min(max(count, 0), left)

    def _whole_lines(self, text: str) -> int:
        """How many whole lines of code stand behind the fence at `_start`; 0 without one."""
        block = self._fence + text[self._start :]
        return block.count("\n") - 1 if _FENCE.match(block) else 0

    def _handed_out(self, rows: list[Line]) -> list[Line]:
        found = self._led(rows)
        if rows:
            self._lead, self._gap = _REST, False
        return found

    def _led(self, rows: list[Line]) -> list[Line]:
        """The rows behind the message's mark, or indented as far."""
        found: list[Line] = [[]] if rows and self._gap else []
        lead = self._lead
        for row in rows:
            found.append([*lead, *row] if row or lead is _FIRST else [])
            lead = _REST
        return found


def _open_fence(code: str) -> str:
    """The fence that a text begins with, if it is not closed."""
    first, _, rest = code.partition("\n")
    if (found := _FENCE.match(first)) is None:
        return ""
    closing = rf"^ {{0,3}}{found[1]}{found[1][0]}*[ \t]*$"
    return "" if re.search(closing, rest, re.MULTILINE) else f"{found[1]}\n"


def _texts(rows: list[Line]) -> list[str]:
    return [plain_text(row) for row in rows]


def _letters(row: Line) -> int:
    """How many letters and digits a row has: those that no mark of Markdown adds or takes."""
    return sum(map(str.isalnum, plain_text(row)))


def _letters_of(rows: list[Line]) -> str:
    return "".join(filter(str.isalnum, "".join(_texts(rows))))


def _shared(before: str, now: str) -> int:
    """How many letters both begin with: a link that closes loses some that were printed."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (was, new) in pairs if was != new), min(len(before), len(now)))


def _behind(row: Line, letters: int) -> Line:
    """A row without so many of its letters, at the same indent."""
    text = plain_text(row)
    found: Line = [("", text[: len(text) - len(text.lstrip())])]
    for style, piece in row:
        at = 0
        while letters and at < len(piece):
            letters -= piece[at].isalnum()
            at += 1
        if piece[at:]:
            found.append((style, piece[at:]))
    return found
