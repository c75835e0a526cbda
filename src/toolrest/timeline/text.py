"""Text that others wrote, as rows of a terminal that cannot be taken for our own."""

from __future__ import annotations

import os
import re
from unicodedata import east_asian_width

from toolrest.policy.terminal_safe import display_safe


def shown(text: str) -> str:
    """One line of external text: nothing in it can act on the terminal or hide."""
    return display_safe(text)


def short_path(path: str) -> str:
    """A path as people write it: `~` for the user's home."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home + os.sep) else path


_BASE = "[^\x00-\x7f\ufe00-\ufe0f\u200b-\u200f]"
_JOINED = re.compile(
    f"((?<={_BASE})(?:\ufe0f?\u200d(?={_BASE})|\u200c(?={_BASE})|[\ufe0e\ufe0f])|\ufe0f(?=\u20e3))"
)
"""What makes one emoji of several characters, or parts letters of one word."""


def safe_text(text: str) -> str:
    """A text of a message, with its layout, in which emoji and scripts with joiners stay whole."""
    if text.isascii() and text.isprintable():
        return text
    parts = _JOINED.split(text.replace("\r\n", "\n"))
    return "".join(
        part if number % 2 else display_safe(part, keep_layout=True)
        for number, part in enumerate(parts)
    )


def safe_lines(text: str) -> list[str]:
    """Lines of text that others wrote: nothing acts on the terminal, tabs are spaces."""
    if text.isascii() and text.isprintable():
        return [text]
    safe = display_safe(text.replace("\r\n", "\n"), keep_layout=True)
    return [line.expandtabs(8).rstrip() for line in safe.split("\n")]


BAR = "  | "


def block(text: str) -> list[str]:
    """Several lines of external text, each behind a bar so that none looks like ours."""
    return [BAR + line for line in display_safe(text, keep_newlines=True).split("\n")]


def rows(line: str, width: int) -> list[str]:
    """A line as rows that fit the terminal, every one behind the bar, or indented, as it is.

    Left to itself a terminal breaks a long line at its edge, and what a model wrote would go on
    in the first column, where only our own text begins.
    """
    lead = BAR if line.startswith(BAR) else " " * len(BAR)
    room = max(width - len(BAR) - 1, 16)
    rest = line.removeprefix(BAR)
    if text_width(rest) <= room:
        return [line]
    first, *others = rows_of(rest, room) if rest is not line else _rows_of_words(rest, room)
    return [line[: len(line) - len(rest)] + first, *(lead + row for row in others)]


def _rows_of_words(text: str, width: int) -> list[str]:
    """A long line of our own as rows that end between words where they can."""
    found = []
    while text_width(text) > width:
        row = rows_of(text[: width + 1], width)[0]
        end = row.rfind(" ") + 1
        found.append(row[:end] if end > width // 2 else row)
        text = text[len(found[-1]) :]
    return [*found, text]


def rows_of(text: str, width: int) -> list[str]:
    """A long line as the rows that a terminal makes of it."""
    found, used = [""], 0
    for char in text:
        size = text_width(char)
        if used + size > width:
            found.append("")
            used = 0
        found[-1] += char
        used += size
    return found


def cut_to(text: str, width: int) -> str:
    """A text no wider than `width` columns; what is cut off shows as `…`."""
    if text_width(text) <= width:
        return text
    if width < text_width("…"):
        return ""
    used, kept = text_width("…"), []
    for char in text:
        used += text_width(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + "…"


def text_width(text: str) -> int:
    """How many columns a text may take; where terminals differ, the larger number."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(char) in "WFA" else 1 for char in text)
