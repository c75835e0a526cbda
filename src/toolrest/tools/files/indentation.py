"""The block of lines around a line, by indentation alone.

From an anchor line the block grows by one line up and one line down in turn. `max_levels` says
how many levels of four columns above the anchor's it may reach; at that outermost level siblings
are left out unless wanted, and comments right above the block belong to it as its header.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

TAB_COLUMNS = 4
LEVEL_COLUMNS = 4
MEASURED_BYTES = 1 << 16
"""Bytes of a line that are read for its indentation."""

_COMMENTS = ("#", "//", "--")
# What Unicode calls white space; str.strip() would also take the separators U+001C to U+001F.
_WHITE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)


class Shape(Struct, frozen=True):
    """The limits of a block. `levels` 0 means no limit."""

    levels: int = 0
    siblings: bool = False
    header: bool = True


class IndentedLine(NamedTuple):
    """A line, its number, its effective indentation, and whether it is blank or a comment."""

    number: int
    raw: bytes
    indent: int
    blank: bool
    comment: bool


def around(
    source: Iterable[bytes], anchor: int, most: int, kept: int
) -> tuple[list[IndentedLine], int]:
    """The anchor's row and up to `most` - 1 rows on each side, and the anchor's place in them.

    Of each line `kept` bytes stay. Reading stops as soon as no further line can matter. An
    anchor past the end gives no rows.
    """
    rows: list[IndentedLine] = []
    first, last = anchor - most + 1, anchor + most - 1
    solid = b""  # the latest line that is not blank: blank ones inherit its indentation
    for number, raw in enumerate(source, 1):
        if number > last:
            break
        if number < first:
            bare = raw.lstrip()
            if bare and (bare[0] < 0x80 or not _look(raw)[0]):
                solid = raw
            continue
        blank, comment = _look(raw)
        if not blank:
            solid = raw
        rows.append(IndentedLine(number, raw[:kept], columns(solid), blank, comment))
    if not rows or rows[-1].number < anchor:
        return [], 0
    return rows, anchor - rows[0].number


def columns(raw: bytes) -> int:
    """Leading spaces count one, tabs four; anything else ends the indentation."""
    lead = raw[: len(raw) - len(raw.lstrip(b" \t"))]
    return len(lead) + (TAB_COLUMNS - 1) * lead.count(b"\t")


def _look(raw: bytes) -> tuple[bool, bool]:
    """Whether a line is blank, and whether it is a comment."""
    bare = raw.lstrip()
    if bare and bare[0] < 0x80:
        return False, bare.startswith((b"#", b"//", b"--"))
    text = bare.decode("utf-8", "replace").strip(_WHITE)
    return not text, text.startswith(_COMMENTS)


class _Edge(Struct):
    """One end of the block, and whether it may take the next line."""

    least: int
    shape: Shape
    takes_header: bool
    met: bool = False

    def admits(self, row: IndentedLine) -> bool:
        if row.indent < self.least:
            return False
        if row.indent > self.least or self.shape.siblings:
            return True
        first, self.met = not self.met, True
        return first or (self.takes_header and row.comment)


def block(rows: list[IndentedLine], anchor: int, most: int, shape: Shape) -> list[IndentedLine]:
    """The rows of the block around `rows[anchor]`, at most `most`, without blank ends."""
    if most == 1 or len(rows) == 1:
        return [rows[anchor]]
    reach = shape.levels * LEVEL_COLUMNS
    least = max(0, rows[anchor].indent - reach) if shape.levels else 0
    top, bottom = _Edge(least, shape, shape.header), _Edge(least, shape, False)
    first = last = anchor
    up = down = True
    while (up or down) and last - first + 1 < most:
        up = up and first > 0 and top.admits(rows[first - 1])
        first -= up
        if last - first + 1 == most:
            break
        down = down and last + 1 < len(rows) and bottom.admits(rows[last + 1])
        last += down
    return _trimmed(rows[first : last + 1])


def _trimmed(rows: list[IndentedLine]) -> list[IndentedLine]:
    solid = [index for index, row in enumerate(rows) if not row.blank]
    return rows[solid[0] : solid[-1] + 1] if solid else []
