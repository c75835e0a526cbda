"""Texts of very many lines: found, counted and cut as one string, never listed line by line.

A list of lines takes some sixty bytes a line, whatever its length. Here only the line ends of
each block are counted; all else is left to the interpreter's own search in the string. Lines must
then be exactly as asked for: no other white space or punctuation is forgiven.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice
from typing import overload

from toolrest.patch.text.match import MOST_LINES

MOST_PLACES = 1_000
EXACT_ONLY = (
    f"the file has more than {MOST_LINES:,} lines, so only lines exactly as they are in the file "
    "are found, and nothing similar is looked for; read the place again"
)
_BLOCK = 16_384


def first_ending(text: str) -> str:
    """The first line ending in a text, or nothing."""
    found = [at for at in (text.find("\n"), text.find("\r")) if at >= 0]
    if not found:
        return ""
    return "\r\n" if text.startswith("\r\n", min(found)) else text[min(found)]


def count_ends(
    text: str, start: int = 0, stop: int | None = None, *, universal: bool = True
) -> int:
    """The number of line ends in a stretch of a text, which must not cut a CRLF in two."""
    ends = text.count("\n", start, stop)
    if universal and (returns := text.count("\r", start, stop)):
        ends += returns - text.count("\r\n", start, stop)
    return ends


class LongText(Sequence[str]):
    """The lines of a text, by number, and where some of them follow each other.

    Lines end at LF, CRLF or CR; with `universal=False` at LF only.
    """

    def __init__(self, text: str, *, universal: bool = True) -> None:
        self.ending = first_ending(text) or "\n"
        self._whole = _Ends(text, universal)
        if universal and "\r" in text:
            self._plain = _Ends(text.replace("\r\n", "\n").replace("\r", "\n"), universal=False)
        else:
            self._plain = self._whole
        plain = self._plain.text
        self._size = self._plain.before(len(plain)) + (plain[-1:] not in ("", "\n"))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return (line.removesuffix("\n") for line in StringIO(self._plain.text, newline="\n"))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._size))]
        plain = self._plain
        return plain.text[plain.start(index) : plain.start(index + 1)].removesuffix("\n")

    @property
    def texts(self) -> Sequence[str]:
        """The lines without their endings."""
        return self

    def raw_span(self, first: int, stop: int) -> str:
        """A range of lines as one text."""
        if first >= stop:
            return ""
        return self._whole.text[self._whole.start(first) : self._whole.start(stop)]

    def span(self, first: int, stop: int) -> str:
        """A range of lines as one text, in which every line has an ending."""
        text = self.raw_span(first, stop)
        return text if not text or text.endswith(("\n", "\r")) else text + self.ending

    def find(self, lines: list[str], start: int, *, eof: bool = False) -> int | None:
        """The first match at or after `start`; with `eof` only the very end of the file."""
        top = self._size - len(lines)
        first = max(top, start) if eof else start
        if not lines or first > top:
            return None if lines else start
        place = self._search("\n".join(lines), self._plain.start(first))
        return None if place is None else self._plain.before(place)

    def nearest(self, lines: list[str], expected: int, low: int) -> int | None:
        """The match at or after `low` that is nearest to `expected`."""
        top = self._size - len(lines)
        expected = min(max(expected, low), max(top, low))
        below = self.find(lines, expected)
        above = self._find_last("\n".join(lines), low, min(expected, top))
        found = [place for place in (below, above) if place is not None]
        return min(found, key=lambda place: abs(place - expected), default=None)

    def places(self, lines: list[str], low: int) -> list[int]:
        """The first matches at or after `low`, `MOST_PLACES` at most."""
        found: list[int] = []
        place = self.find(lines, low)
        while place is not None and len(found) < MOST_PLACES:
            found.append(place)
            place = self.find(lines, place + 1)
        return found

    def _search(self, needle: str, at: int) -> int | None:
        """Where the first whole lines with this text begin, at or after the beginning of a line."""
        text = self._plain.text
        if text.startswith(f"{needle}\n", at):
            return at
        place = text.find(f"\n{needle}\n", at)
        if place >= 0:
            return place + 1
        last = len(text) - len(needle)
        return last if last >= at and self._ends_with(needle) else None

    def _find_last(self, needle: str, low: int, top: int) -> int | None:
        if low > top:
            return None
        text = self._plain.text
        start, last = self._plain.start(low), self._plain.start(top)
        if last + len(needle) == len(text) and self._ends_with(needle):
            return top
        place = text.rfind(f"\n{needle}\n", max(start - 1, 0), last + len(needle) + 1)
        if place >= 0:
            return self._plain.before(place + 1)
        return low if text.startswith(f"{needle}\n", start) else None

    def _ends_with(self, needle: str) -> bool:
        """Whether the last lines are these, the very last one without an ending."""
        text = self._plain.text
        before = len(text) - len(needle) - 1
        return text.endswith(needle) and (before < 0 or text[before] == "\n")


class _Ends:
    """The line ends of a text, counted block by block."""

    def __init__(self, text: str, universal: bool) -> None:
        self.text = text
        self._universal = universal and "\r" in text
        self._cuts = [0]
        self._counts = [0]
        while self._cuts[-1] < len(text):
            start = self._cuts[-1]
            stop = start + _BLOCK
            if self._universal and text.startswith("\r\n", stop - 1):
                stop += 1
            ends = count_ends(text, start, stop, universal=self._universal)
            self._cuts.append(min(stop, len(text)))
            self._counts.append(self._counts[-1] + ends)

    def before(self, offset: int) -> int:
        """The number of line ends before an offset."""
        block = bisect_right(self._cuts, offset) - 1
        rest = count_ends(self.text, self._cuts[block], offset, universal=self._universal)
        return self._counts[block] + rest

    def start(self, line: int) -> int:
        """The offset at which a line (from 0) begins; behind the last one the end of the text."""
        if line <= 0:
            return 0
        block = bisect_left(self._counts, line) - 1
        if block + 1 >= len(self._counts):
            return len(self.text)
        start, stop = self._cuts[block], self._cuts[block + 1]
        lines = StringIO(self.text[start:stop], newline="" if self._universal else "\n")
        return start + sum(map(len, islice(lines, line - self._counts[block])))
