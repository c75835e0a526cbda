"""Make text from a model, a tool or a file safe to show: it cannot deceive a reader.

Whatever a terminal would obey, hide or reorder is spelled out between `⟨` and `⟩`; `⟨` itself
is spelled out too, so two different texts never look the same (look-alike letters aside).
"""

from __future__ import annotations

import re
from itertools import groupby

_OPEN, _CLOSE = "⟨", "⟩"
_NAMES = {"\n": "LF", "\r": "CR", "\t": "TAB", "\x1b": "ESC", "\x00": "NUL", " ": "SP"}
# Letters and marks by category, yet drawn as nothing; str.isprintable knows all the others.
_INVISIBLE = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef"
)
_HIDDEN = re.compile(f"[{_OPEN}{_INVISIBLE}]")
_PADDING = 8
_BLANK_LINES = 2


def display_safe(text: str, *, keep_newlines: bool = False, keep_layout: bool = False) -> str:
    """Show every control, bidi, zero-width or private character, and long padding, in words.

    With `keep_newlines` a newline still breaks the line, though a run of three or more is
    counted instead of shown. With `keep_layout` newlines,
    tabs and spaces stay, however many. Nothing is cut: that is for the caller to do, and to say.
    """
    if text.isprintable() and " " * (_PADDING + 1) not in text and _HIDDEN.search(text) is None:
        return text
    kept = "\n\t " if keep_layout else ""
    return "".join(
        char * count if char in kept else _shown(char, count, keep_newlines)
        for char, run in groupby(text)
        for count in (sum(1 for _ in run),)
    )


def _shown(char: str, count: int, keep_newlines: bool) -> str:
    if char == " ":
        return char * count if count <= _PADDING else _spelled(char, count)
    if char == "\n" and keep_newlines:
        return char * count if count <= _BLANK_LINES else _spelled(char, count) + "\n"
    if char.isprintable() and _HIDDEN.match(char) is None:
        return char * count
    return _spelled(char, count)


def _spelled(char: str, count: int) -> str:
    name = _NAMES.get(char) or f"U+{ord(char):04X}"
    return f"{_OPEN}{name}{f'×{count}' if count > 1 else ''}{_CLOSE}"
