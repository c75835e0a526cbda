"""The drawing of blocks of Markdown as rows of a terminal: wrapped, aligned and coloured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from toolrest.timeline.blocks import (
    Block,
    Code,
    Heading,
    Item,
    Listing,
    Paragraph,
    Quote,
    Span,
    Spans,
    Table,
)
from toolrest.timeline.highlight import highlighted
from toolrest.timeline.text import safe_text
from toolrest.timeline.wrap import Line, broken, drawn_width, hung, plain_text, wrapped

_HEADINGS = {1: "bold underline", 2: "bold"}
_CODE_INDENT = "  "
_GAP = "  "
_NARROWEST = 6
"""Columns of a table's cell; where even that does not fit, rows become records."""
_LEAST = 8
Widths: TypeAlias = "tuple[int, ...] | None"
"""The columns of a table; None where its rows are drawn as records."""


def block_lines(blocks: Sequence[Block], width: int, *, tight: bool = False) -> list[Line]:
    """The rows of blocks, with an empty row between two unless they belong together."""
    found: list[Line] = []
    for number, block in enumerate(blocks):
        if number and not (tight and isinstance(block, Listing | Paragraph)):
            found.append([])
        found += _rows(block, max(width, _LEAST))
    return found


def _rows(block: Block, width: int) -> list[Line]:
    match block:
        case Paragraph(spans):
            return _text(spans, width)
        case Heading(level, spans):
            return _text(spans, width, _HEADINGS.get(level, "bold emphasis"))
        case Code():
            return [row for rows in code_rows(block, width) for row in rows]
        case Quote(blocks):
            bar: Line = [("dim", "│ ")]
            rows = block_lines(blocks, width - 2)
            return [[*bar, *row] for row in rows]
        case Listing(items, tight):
            return _list(items, width, tight=tight)
        case Table():
            return table_rows(block, table_widths(block, width), width)
        case _:
            return [[("dim", "─" * min(width, 24))]]


def code_rows(code: Code, width: int, start: int = 0) -> list[list[Line]]:
    """The rows of each line of code from `start` on, in the colours of its language."""
    lines = [safe_text(line).expandtabs(8).rstrip() for line in code.text.split("\n")]
    indent: Line = [("", _CODE_INDENT)]
    room = max(width - len(_CODE_INDENT), _LEAST)
    return [
        hung(broken(line, room), indent, indent) if line else [[]]
        for line in highlighted(lines, code.language)[start:]
    ]


def paragraph_rows(paragraph: Paragraph, width: int) -> list[list[Line]]:
    """The rows of each line of a paragraph."""
    return [wrapped(line, width) for line in _lines(paragraph.spans)]


def _list(items: Sequence[Item], width: int, *, tight: bool) -> list[Line]:
    marks = [item.mark for item in items]
    size = max(map(drawn_width, marks)) + 1
    found: list[Line] = []
    for number, (item, mark) in enumerate(zip(items, marks, strict=True)):
        first: Line = [("", f"{mark:>{size - 1}} ")]
        if item.checked is not None:
            box = ("green", "☑ ") if item.checked else ("", "☐ ")
            first = [box] if mark == "•" else [*first, box]
        lead = drawn_width(plain_text(first))
        rows = block_lines(item.blocks, width - lead, tight=tight) or [[]]
        if number and not tight:
            found.append([])
        found += hung(rows, first, [("", " " * lead)])
    return found


def _text(spans: Spans, width: int, style: str = "") -> list[Line]:
    return [row for line in _lines(spans, style) for row in wrapped(line, width)]


def _lines(spans: Spans, style: str = "") -> list[Line]:
    """Text as lines of styled pieces, that are safe to print."""
    lines: list[Line] = [[]]
    for span in spans:
        for number, part in enumerate(span.text.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append((_style(span, style), safe_text(part).expandtabs(8)))
    return lines


def _style(span: Span, style: str) -> str:
    link = f"link {span.href}" if span.href else ""
    return " ".join(dict.fromkeys(filter(None, f"{style} {span.style} {link}".split())))


# Tables


def table_widths(table: Table, width: int) -> Widths:
    """The width of each column: as wide as its text, or less where that does not fit."""
    count = len(table.aligns)
    room = width - len(_GAP) * (count - 1)
    natural, least = [1] * count, [1] * count
    for row in table.rows:
        for at, cell in enumerate(row):
            line = _cell(cell)
            words = plain_text(line).split()
            natural[at] = max(natural[at], drawn_width(plain_text(line)))
            longest = max(map(drawn_width, words), default=1)
            least[at] = max(least[at], min(longest, max(_NARROWEST, room // count)))
    if sum(natural) <= room:
        return tuple(natural)
    least = [min(small, wide) for small, wide in zip(least, natural, strict=True)]
    if sum(least) > room:
        return None
    widths, left = least[:], room - sum(least)
    while left:  # to the column whose text has the most rows
        at = max(range(count), key=lambda n: natural[n] / widths[n])
        widths[at] += 1
        left -= 1
    return tuple(widths)


def table_rows(table: Table, widths: Widths, width: int) -> list[Line]:
    """The rows of a table in these widths."""
    if widths is None:
        return _records(table, width)
    found: list[Line] = []
    for number, row in enumerate(table.rows):
        style = "bold" if number == 0 else ""
        cells = [wrapped(_cell(cell, style), size) for cell, size in zip(row, widths, strict=True)]
        for at in range(max(map(len, cells))):
            found.append(_aligned(table, [cell[at : at + 1] for cell in cells], widths))
        if number == 0:
            found.append([("dim", _GAP.join("─" * size for size in widths))])
    return found


def _aligned(table: Table, cells: Sequence[Sequence[Line]], widths: Sequence[int]) -> Line:
    line: Line = []
    pad = 0
    for align, cell, size in zip(table.aligns, cells, widths, strict=True):
        pieces = cell[0] if cell else []
        free = size - drawn_width(plain_text(pieces))
        before = {"left": 0, "center": free // 2, "right": free}[align] if pieces else 0
        line += [("", " " * (pad + before)), *pieces] if pieces else []
        pad = (free - before + len(_GAP)) if pieces else pad + size + len(_GAP)
    return [piece for piece in line if piece[1]]


def _records(table: Table, width: int) -> list[Line]:
    """A table that is too wide, row by row: each cell behind the name of its column."""
    head, *rows = table.rows
    found: list[Line] = []
    for number, row in enumerate(rows or [head]):
        found += [[]] if number else []
        for name, cell in zip(head, row, strict=True):
            label = plain_text(_cell(name))
            line = [("bold", f"{label}: "), *_cell(cell)] if label else _cell(cell)
            found += hung(wrapped(line, max(width - 2, _LEAST)), [], [("", "  ")])
    return found


def _cell(cell: Spans, style: str = "") -> Line:
    lines = _lines(cell, style)
    return lines[0]
