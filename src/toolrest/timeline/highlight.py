"""Code in colours, by Pygments: as far as it is short enough to be read at once."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from toolrest.timeline.wrap import Line

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_MOST = 20_000
"""Letters that get colours; what follows has none."""
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
    found: list[Line] = [[("", line)] if line else [] for line in lines]
    lexer = _lexer(language.lower()) if language else None
    count = size = 0
    for line in lines:
        size += len(line) + 1
        if size > _MOST:
            break
        count += 1
    if lexer is None or not count:
        return found
    coloured: list[Line] = [[]]
    for token, text in lexer.get_tokens("\n".join(lines[:count])):
        style = _style(str(token)[6:])
        for number, part in enumerate(text.split("\n")):
            if number:
                coloured.append([])
            row = coloured[-1]
            if row and row[-1][0] == style:
                row[-1] = style, row[-1][1] + part
            elif part:
                row.append((style, part))
    return [*coloured, *found[count:]] if len(coloured) == count else found


def language_of(path: str) -> str:
    """The language of a file by its name, as its ending says; empty where that is none."""
    name, ending = os.path.splitext(os.path.basename(path))
    return (ending or name).lstrip(".").lower()


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
