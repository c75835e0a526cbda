"""Markdown for the page: blocks as JSON, code with its colours, all of it of a bounded size.

The page makes nodes of it by createElement and textContent; nothing here is markup.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import to_builtins

from toolrest.items import JSONObject
from toolrest.timeline.blocks import (
    Block,
    Code,
    Heading,
    Listing,
    Paragraph,
    Placed,
    Quote,
    Span,
    Spans,
    Table,
    read_blocks,
)
from toolrest.timeline.highlight import highlighted

LONGEST = 64 * 1024
"""Characters that are read as Markdown; a longer text is shown as it is."""
_MOST_NODES = 6000
_MOST_MARKS = 10_000
"""Characters that may begin or end a style: tokens of so many are collected in one go, which holds
up every other thread."""
_MOST_ROWS = 200
_DELIMITERS = re.compile(r"[ \t]*\|?[ \t:-]*-[ \t:|-]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class _TooMany(Exception):
    """A text of more parts than a browser draws at once."""


def message_blocks(text: str) -> list[JSONObject] | None:
    """The blocks of a message; None for a text that is shown as it is."""
    folded, left_out = _fold_tables(text)
    if _is_too_much(folded):
        return None
    try:
        return _Writer(left_out).all(read_blocks(folded))
    except _TooMany:
        return None


def _is_too_much(text: str) -> bool:
    return len(text) > LONGEST or sum(map(text.count, "*_~`[<")) > _MOST_MARKS


def _fold_tables(text: str) -> tuple[str, dict[int, int]]:
    """The text without the rows that no long table shows: how many, by the line it begins in."""
    if text.count("\n") <= _MOST_ROWS:
        return text, {}
    kept: list[str] = []
    left_out: dict[int, int] = {}
    fence, start = "", -1
    for line in text.split("\n"):
        if found := _FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        if fence or not line.lstrip(" ").startswith("|"):
            start = -1
        elif start < 0:
            start = len(kept)
        # One row is the head, one says how the columns are aligned.
        if start >= 0 and len(kept) - start >= _MOST_ROWS + 2 and _is_table(kept, start):
            left_out[start] = left_out.get(start, 0) + 1
        else:
            kept.append(line)
    return "\n".join(kept), left_out


def _is_table(lines: list[str], start: int) -> bool:
    """Whether a table begins here, by the count of its columns, too."""
    head, marks = lines[start].strip(), lines[start + 1].strip()
    return (
        _DELIMITERS.fullmatch(marks) is not None
        and "\\" not in head
        and "`" not in head
        and head.strip("|").count("|") == marks.strip("|").count("|")
        and (start == 0 or not lines[start - 1].strip())
    )


class _Writer:
    """Writes blocks as JSON, and counts what a browser would make of them."""

    def __init__(self, left_out: dict[int, int]) -> None:
        self._left_out = left_out
        self._nodes = 0

    def all(self, placed: list[Placed]) -> list[JSONObject] | None:
        """The blocks; None where a table was taken for one that is none."""
        found = []
        tables = 0
        for one in placed:
            more = self._left_out.get(one.line, 0) if isinstance(one.block, Table) else 0
            tables += more > 0
            found.append(self._block(one.block, more))
        return found if tables == len(self._left_out) else None

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _MOST_NODES:
            raise _TooMany

    def _block(self, block: Block, more: int = 0) -> JSONObject:
        self._count(1)
        match block:
            case Quote(blocks):
                return {"type": "quote", "blocks": [self._block(one) for one in blocks]}
            case Listing(items, tight):
                rows = [
                    {**self._item(item.mark, item.checked), "blocks": self._blocks(item.blocks)}
                    for item in items
                ]
                return {"type": "list", "items": rows, "tight": tight}
            case Table(aligns, rows):
                shown = [[self._spans(cell) for cell in row] for row in rows[: _MOST_ROWS + 1]]
                more += max(0, len(rows) - _MOST_ROWS - 1)
                return {"type": "table", "aligns": [*aligns], "rows": shown, "more": more}
            case Code(text, language):
                spans = coloured(text, language)
                self._count(len(spans))
                return {
                    "type": "code",
                    "language": language[:40],
                    "spans": [[*span] for span in spans],
                }
            case Heading(level, spans):
                return {"type": "heading", "level": level, "spans": self._spans(spans)}
            case Paragraph(spans):
                return {"type": "paragraph", "spans": self._spans(spans)}
        return {"type": "rule"}

    def _blocks(self, blocks: tuple[Block, ...]) -> list[JSONObject]:
        return [self._block(one) for one in blocks]

    def _item(self, mark: str, checked: bool | None) -> JSONObject:
        self._count(1)
        return {"mark": mark, "checked": checked}

    def _spans(self, spans: Spans) -> list[JSONObject]:
        self._count(1 + len(spans))
        return [_span(span) for span in spans]


def _span(span: Span) -> JSONObject:
    found: JSONObject = to_builtins(span)
    return found


# Code

_LONGEST_CODE = 20_000
_LONGEST_LINE = 400
"""Characters of a line of code that is coloured: patterns are slow where lines are long."""
_LANGUAGES = re.compile(
    r"bash|c|c\+\+|cpp|cs|csharp|css|diff|docker|dockerfile|go|html|ini|java|javascript|js|json|jsx"
    r"|kotlin|lua|make|makefile|markdown|md|php|powershell|py|python|python3|rb|ruby|rust|rs|scala"
    r"|sh|shell|sql|swift|toml|ts|tsx|typescript|xml|yaml|yml|zig|zsh"
)
Coloured = list[tuple[str, str]]


def coloured(text: str, language: str) -> Coloured:
    """The code in pieces of one style each; in one piece where its language is not known."""
    lines = text.split("\n")
    is_long = len(text) > _LONGEST_CODE or max(map(len, lines)) > _LONGEST_LINE
    if is_long or not _LANGUAGES.fullmatch(language.lower()):
        return [("", text)]
    found: Coloured = []
    for number, line in enumerate(highlighted(lines, language)):
        for style, piece in (("", "\n" * (number > 0)), *line):
            if found and (found[-1][0] == style or not piece.strip()):
                found[-1] = (found[-1][0], found[-1][1] + piece)
            elif piece:
                found.append((style, piece))
    whole = "".join(piece for _, piece in found)
    return found if whole == text else [("", text)]


# What is being written


class LiveMarkup:
    """The blocks of a text that grows: those that are whole, and the last one, which may change."""

    def __init__(self) -> None:
        self._open = ""
        self._is_plain = False

    @property
    def size(self) -> int:
        """Characters that the next piece makes it read again."""
        return 0 if self._is_plain else len(self._open)

    def feed(self, piece: str) -> JSONObject:
        """Take a piece: blocks that are whole now, and the one that is open."""
        if self._is_plain:
            return {"plain": piece}
        self._open += piece
        if _is_too_much(self._open):
            self._is_plain = True
            return {"whole": [], "open": [], "plain": self._open}
        whole, last, at = _live(self._open)
        self._open = self._open[at:]
        return {"whole": whole, "open": last}


@lru_cache(maxsize=32)
def _live(text: str) -> tuple[list[JSONObject], list[JSONObject], int]:
    """The whole blocks, the open one, and where that begins: once for all viewers of a session."""
    placed = read_blocks(text)
    if not placed:
        return [], [], 0
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    last = placed[-1]
    try:
        return (
            _Writer({}).all(placed[:-1]) or [],
            _Writer({}).all([last]) or [],
            starts[last.line],
        )
    except _TooMany:
        plain = [{"type": "paragraph", "spans": [{"text": text}]}]
        return [], plain, 0
