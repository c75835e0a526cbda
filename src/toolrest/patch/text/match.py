"""Match of a hunk's lines in a file: exact first, then three ever more forgiving comparisons.

Each line becomes one character (every line that no hunk asks for becomes NUL), so that looking
for some lines in a file is looking for a short string in a long one: the interpreter's own
search, linear even for hostile input. Files of 50,000 lines and hundreds of hunks stay cheap.
"""

from __future__ import annotations

from itertools import repeat

from toolrest.patch.codex_grammar import WHITESPACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_FOLDED = {
    **dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-"),
    **dict.fromkeys(range(0x2018, 0x201C), "'"),
    **dict.fromkeys(range(0x201C, 0x2020), '"'),
    **dict.fromkeys([0xA0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000], " "),
}
_LETTERS = 0x10F000


MOST_LINES = 200_000
"""Line ends in a text that is still handled as a list of lines."""


def is_long(text: str) -> bool:
    """Whether a text has too many lines to list them."""
    return len(text) > MOST_LINES and text.count("\n") + text.count("\r") > MOST_LINES


def trimmed_end(line: str) -> str:
    """The line without the white space at its end."""
    return line.rstrip(WHITESPACE)


def trimmed(line: str) -> str:
    """The line without the white space around it."""
    return line.strip(WHITESPACE)


def folded(line: str) -> str:
    """The line trimmed, with typographic dashes, quotes and spaces made plain."""
    line = line.strip(WHITESPACE)
    return line if line.isascii() else line.translate(_FOLDED)


PASSES: tuple[tuple[str, Callable[[str], str] | None], ...] = (
    ("exact", None),
    ("trailing whitespace", trimmed_end),
    ("surrounding whitespace", trimmed),
    ("punctuation", folded),
)


class Finder:
    """Finds the lines of hunks in one file. `wanted` must hold every line ever looked for."""

    def __init__(self, texts: Sequence[str], wanted: Iterable[str]) -> None:
        self.texts = texts
        self._wanted = list(wanted)
        self._images: list[_Image] = []

    def find(self, lines: list[str], start: int, *, eof: bool = False) -> int | None:
        """The first match at or after `start`; with `eof` only the very end of the file.

        A stricter comparison further down wins over a looser one further up.
        """
        if not lines:
            return start
        top = len(self.texts) - len(lines)
        first = max(top, start) if eof else start
        if first > top:
            return None
        for level in range(len(PASSES)):
            place = self._image(level).find(lines, first, top)
            if place is not None:
                return place
        return None

    def nearest(self, lines: list[str], expected: int, low: int) -> int | None:
        """The match at or after `low` that is nearest to `expected`; strictest comparison first."""
        top = len(self.texts) - len(lines)
        expected = min(max(expected, low), max(top, low))
        for level in range(len(PASSES)):
            image = self._image(level)
            below = image.find(lines, expected, top) if expected <= top else None
            above = image.find_last(lines, low, min(expected, top))
            found = [place for place in (below, above) if place is not None]
            if found:
                return min(found, key=lambda place: abs(place - expected))
        return None

    def places(self, lines: list[str], low: int) -> list[int]:
        """All matches at or after `low` by the strictest comparison that has any."""
        top = len(self.texts) - len(lines)
        for level in range(len(PASSES)):
            found: list[int] = []
            place = self._image(level).find(lines, low, top)
            while place is not None:
                found.append(place)
                place = self._image(level).find(lines, place + 1, top)
            if found:
                return found
        return []

    def _image(self, level: int) -> _Image:
        while len(self._images) <= level:
            key = PASSES[len(self._images)][1]
            self._images.append(_Image(self.texts, self._wanted, key))
        return self._images[level]


class _Image:
    """A file under one comparison: its lines as keys, and as one string of letters."""

    def __init__(
        self, texts: Sequence[str], wanted: list[str], key: Callable[[str], str] | None
    ) -> None:
        self.key = key
        self.keys = texts if key is None else [key(text) for text in texts]
        asked = dict.fromkeys(wanted if key is None else map(key, wanted))
        # Letters run out only past a million different lines; a hit is compared once more.
        self.letters = {line: chr(1 + i % _LETTERS) for i, line in enumerate(asked)}
        self.image = "".join(map(self.letters.get, self.keys, repeat("\0")))

    def find(self, lines: list[str], first: int, top: int) -> int | None:
        """The first match from `first` to `top`."""
        keys, needle = self._needle(lines)
        size = len(keys)
        place = self.image.find(needle, first, top + size)
        while place >= 0:
            if self.keys[place : place + size] == keys:
                return place
            place = self.image.find(needle, place + 1, top + size)
        return None

    def find_last(self, lines: list[str], first: int, top: int) -> int | None:
        """The last match from `first` to `top`."""
        keys, needle = self._needle(lines)
        size = len(keys)
        place = self.image.rfind(needle, first, top + size)
        while place >= 0:
            if self.keys[place : place + size] == keys:
                return place
            place = self.image.rfind(needle, first, place + size - 1)
        return None

    def _needle(self, lines: list[str]) -> tuple[list[str], str]:
        keys = lines if self.key is None else [self.key(line) for line in lines]
        return keys, "".join([self.letters[line] for line in keys])
