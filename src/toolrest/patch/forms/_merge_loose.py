"""Where would this text be if the white space around its lines did not count?

Models often get the indentation of what they quote wrong. When the exact text is nowhere, whole
lines are compared without the space around them; the new lines are then moved to where the old
ones really stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from toolrest.patch.text.rebuild import Lines


class Loose(NamedTuple):
    """A place in a text, its first line (from 1), and what is to stand there."""

    start: int
    stop: int
    line: int
    new: str


def loosely(text: str, old: str, new: str) -> list[Loose]:
    """Every place whose lines are those of `old` but for the space around them."""
    wanted = Lines(old).texts
    bare = [line.strip() for line in wanted]
    if not any(bare):
        return []
    lines = Lines(text)
    offsets = [0, *accumulate(map(len, lines.raw))]
    ended = old.endswith(("\n", "\r"))
    places = list(_windows([line.strip() for line in lines.texts], bare))
    found = []
    for at in places:
        last = at + len(bare) - 1
        stop = offsets[last + 1] if ended else offsets[last] + len(lines.texts[last])
        # Of several none will be written.
        only = len(places) == 1
        moved = _moved(new, wanted, lines.texts[at : last + 1]) if only else new
        found.append(Loose(offsets[at], stop, at + 1, moved))
    return found


def _windows(lines: list[str], wanted: list[str]) -> Iterator[int]:
    """Where the wanted lines follow each other; the longest is looked for first."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    for at, line in enumerate(lines):
        first = at - anchor
        if line != wanted[anchor] or not 0 <= first <= len(lines) - len(wanted):
            continue
        if lines[first : first + len(wanted)] == wanted:
            yield first


def _moved(new: str, quoted: list[str], real: list[str]) -> str:
    """The new text, indented as the real lines are where the quoted ones were not."""
    first = next(index for index, line in enumerate(quoted) if line.strip())
    said, meant = _indent(quoted[first]), _indent(real[first])
    lines = new.replace("\r\n", "\n").split("\n")
    return "\n".join(
        meant + line[len(said) :] if line.strip() and line.startswith(said) else line
        for line in lines
    )


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
