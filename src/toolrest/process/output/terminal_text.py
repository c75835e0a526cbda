"""Plain text of terminal output, without colours, titles and progress bars.

A line is what a person would be left with: escape sequences vanish, a carriage return starts
the line again, a backspace takes a character back. Works line by line, so an escape sequence
never swallows more than its own line; of a line longer than `LONGEST` each stretch of that
length is judged by itself, which bounds memory and makes every chunking give the same text.
"""

from __future__ import annotations

import re

LONGEST = 1 << 16
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor, erase
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
    r"|[\x1b\x9b]"
)
_SPECIAL = re.compile("[\r\b\x1b\x80-\x9f]")


class PlainText:
    """Turns terminal output that arrives in pieces into plain text."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Take a piece; return the lines that are finished."""
        text = self._held + text
        end = text.rfind("\n") + 1
        done, held = text[:end], text[end:]
        if _SPECIAL.search(done):
            done = "\n".join(map(_line, done.split("\n")))
        ready = max(0, len(held) - 1) // LONGEST * LONGEST
        self._held = held[ready:]
        return done + _line(held[:ready])

    def flush(self) -> str:
        """Return the unfinished line: the output is over."""
        held, self._held = self._held, ""
        return _line(held)


def _line(line: str) -> str:
    if len(line) <= LONGEST:
        return _stretch(line)
    return "".join(_stretch(line[at : at + LONGEST]) for at in range(0, len(line), LONGEST))


def _stretch(text: str) -> str:
    if not _SPECIAL.search(text):
        return text
    text = _ESCAPES.sub("", text).rstrip("\r")
    text = text[text.rfind("\r") + 1 :]
    if "\b" not in text:
        return text
    kept: list[str] = []
    for char in text:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)
