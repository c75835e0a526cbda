"""Code in colours, by Pygments: as far as it is short enough to be read at once."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, takewhile
from time import thread_time
from typing import TYPE_CHECKING

from toolrest.timeline.wrap import Line, plain_text

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_MOST = 20_000
"""Letters that get colours; what follows has none."""
_FEW = 500
"""Letters that get them at first, and the longest line that does."""
_PATIENCE = 0.05
"""Seconds: a lexer that needs longer is not given twice as much, as its time may be squared."""
_STYLES = {
    "Keyword": "magenta",
    "Keyword.Type": "cyan",
    "Keyword.Constant": "cyan",
    "Operator.Word": "magenta",
    "Name.Function": "blue",
    "Name.Class": "blue",
    "Name.Tag": "blue",
    "Name.Decorator": "yellow",
    "Name.Attribute": "cyan",
    "Name.Builtin": "cyan",
    "Name.Builtin.Pseudo": "",
    "Name.Variable": "cyan",
    "Literal.String": "green",
    "Literal.Number": "yellow",
    "Comment": "dim",
    "Comment.Preproc": "magenta",
    "Generic.Deleted": "red",
    "Generic.Inserted": "green",
    "Generic.Heading": "bold",
    "Generic.Subheading": "cyan",
    "Generic.Prompt": "dim",
}
"""The styles of kinds of code; a kind that is not here has that of the kind above it."""


def highlighted(lines: list[str], language: str) -> list[Line]:
    """Lines of code that are safe to show, each with its styles.

    The colours of a line depend on nothing behind it, where the language allows.
    """
    plain: list[Line] = [[("", line)] if line else [] for line in lines]
    lexer = _lexer(language.lower()) if language else None
    coloured: list[Line] = []
    short = takewhile(lambda line: len(line) < _FEW, lines)
    ends = list(accumulate(len(line) + 1 for line in short))
    most, took = _FEW, 0.0
    while lexer is not None and len(coloured) < len(ends) and most < 2 * _MOST:
        count = bisect_right(ends, min(most, _MOST))
        if count > len(coloured):
            began = thread_time()
            coloured = _coloured(lexer, lines[:count])
            took = thread_time() - began
        if took > _PATIENCE or len(coloured) < count:
            break
        most *= 2
    return [*coloured, *plain[len(coloured) :]]


def _coloured(lexer: Lexer, lines: list[str]) -> list[Line]:
    """The lines in their styles; none where the lexer does not give back what it was given."""
    found: list[Line] = [[]]
    for token, text in lexer.get_tokens("\n".join([*lines, ""])):
        style = _style(str(token)[6:])
        for number, part in enumerate(text.split("\n")):
            if number:
                found.append([])
            row = found[-1]
            if row and row[-1][0] == style:
                row[-1] = style, row[-1][1] + part
            elif part:
                row.append((style, part))
    return found[:-1] if [plain_text(row) for row in found] == [*lines, ""] else []


@lru_cache(maxsize=32)
def _lexer(language: str) -> Lexer | None:
    # Slow to import, and needed where there is code alone.
    from pygments.lexers import find_lexer_class_by_name, find_lexer_class_for_filename
    from pygments.util import ClassNotFound

    options = {"stripnl": False, "ensurenl": False}
    try:
        return find_lexer_class_by_name(language)(**options)
    except ClassNotFound:
        found = find_lexer_class_for_filename(f"x.{language}")
        return None if found is None else found(**options)


@lru_cache(maxsize=512)
def _style(kind: str) -> str:
    while kind:
        if kind in _STYLES:
            return _STYLES[kind]
        kind = kind.rpartition(".")[0]
    return ""
