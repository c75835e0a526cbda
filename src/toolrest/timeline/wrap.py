"""Word wrap of styled text: rows that fit, with what stands before the first and the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import TypeAlias
from unicodedata import category, east_asian_width

Line: TypeAlias = "list[tuple[str, str]]"
"""A row of text: pieces of (style, text); a style is words of `STYLES`, or nothing."""
_PIECES = re.compile(r" +|[^ ]+")
_JOINS = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")
_CLOSING = "、。，．・：；？！）］｝〉》」』】〕ー…"
"""Wide letters that no row begins with."""


def drawn_width(text: str) -> int:
    """The columns of a text as terminals draw it in the West, where ambiguous letters are narrow.

    Emoji of several characters count as all of them: that is never less than is drawn.
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


@lru_cache(maxsize=4096)
def _columns(char: str) -> int:
    if char == "\ufe0f":
        return 1  # what stands before it may be drawn wide
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def wrapped(line: Line, width: int, rest: int | None = None) -> list[Line]:
    """A line as rows of at most `width` columns, broken between words where that can be.

    Those behind the first have at most `rest`, where they stand at an indent.
    """
    if drawn_width(plain_text(line)) <= width:
        return [line]
    widths = width, width if rest is None else rest
    rows: list[Line] = [[]]
    used = 0
    gap: Line = []
    for unit in _units(line):
        if unit[0][1].startswith(" "):
            gap += unit
            continue
        if used and used + _width(gap) + _width(unit) > widths[len(rows) > 1]:
            rows.append([])
            used, gap = 0, []
        used = _fill(rows, used, [*gap, *unit], widths)
        gap = []
    return [_merged(row) for row in rows]


def broken(line: Line, width: int) -> list[Line]:
    """A line as rows that are full, as a terminal breaks it: nothing of it is left out."""
    rows: list[Line] = [[]]
    _fill(rows, 0, line, (width, width))
    return rows


def first_row(line: Line, width: int) -> Line:
    """The beginning of a line, as much of it as fits one row."""
    return broken(line, max(width, 1))[0] if line else line


def _fill(rows: list[Line], used: int, pieces: Line, widths: tuple[int, int]) -> int:
    """Put pieces behind what is `used` of the last row, and into new ones; the columns used now."""
    for style, text in pieces:
        for part in _fitting(text, widths[len(rows) > 1], used, widths[1]):
            if used and used + drawn_width(part) > widths[len(rows) > 1]:
                rows.append([])
                used = 0
            rows[-1].append((style, part))
            used += drawn_width(part)
    return used


def hung(rows: Iterable[Line], first: Line, rest: Line) -> list[Line]:
    """The rows behind `first`, and behind `rest` from the second on; empty ones stay empty."""
    leads = chain([first], repeat(rest))
    return [
        [*lead, *row] if row or number == 0 else []
        for number, (lead, row) in enumerate(zip(leads, rows, strict=False))
    ]


def plain_text(line: Line) -> str:
    """The text of a line alone."""
    return "".join(text for _, text in line)


def _width(pieces: Sequence[tuple[str, str]]) -> int:
    return sum(drawn_width(text) for _, text in pieces)


def _fitting(text: str, width: int, used: int, rest: int) -> Iterator[str]:
    """A text in parts: the first fits behind what is `used`, the others into rows of `rest`."""
    room, is_new, start, columns = max(width - used, 0), not used, 0, 0
    for at, char in enumerate(text):
        size = _columns(char)
        if columns + size > room and (at > start or not is_new):
            if at > start:
                yield text[start:at]
            start, columns, room, is_new = at, 0, max(rest, 1), True
        columns += size
    if start < len(text):
        yield text[start:]


def _units(line: Line) -> Iterator[Line]:
    """The words and gaps of a line; a word may have several styles, a wide letter is a word."""
    word: Line = []
    for style, piece in line:
        for part in _parts(piece):
            is_gap = part.startswith(" ")
            begins = is_gap or (_columns(part[0]) == 2 and part[0] not in _CLOSING)
            if word and (begins or _ends(word[-1][1])) and part[0] not in _CLOSING:
                yield word
                word = []
            word.append((style, part))
            if is_gap:
                yield word
                word = []
    if word:
        yield word


def _ends(text: str) -> bool:
    """Whether a word ends behind this text: with a letter that is wide."""
    return any(_columns(char) == 2 for char in text[-3:])


def _parts(text: str) -> Iterator[str]:
    if text.isascii():
        yield from _PIECES.findall(text)
        return
    for piece in _PIECES.findall(text):
        start = 0
        for at, char in enumerate(piece):
            joined = at and (piece[at - 1] == "\u200d" or _JOINS.match(char) or not _columns(char))
            is_break = _columns(char) == 2 or (at and _columns(piece[at - 1]) == 2)
            if at > start and is_break and not joined:
                yield piece[start:at]
                start = at
        yield piece[start:]


def _merged(row: Line) -> Line:
    found: Line = []
    for style, text in row:
        if found and found[-1][0] == style:
            found[-1] = style, found[-1][1] + text
        else:
            found.append((style, text))
    return found
