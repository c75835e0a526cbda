"""Names of the workspace's files for completion: listed once in a while, matched fuzzily."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from heapq import nsmallest
from time import monotonic

_SKIPPED = {".git", ".hg", ".svn", "node_modules", ".venv", "__pycache__", ".mypy_cache"}
MOST = 200_000
_FRESH = 10.0
_SHOWN = 8


class FileNames:
    """The files below a folder, without those of version control and package managers.

    `listed` is asked first: git knows what is ignored. It answers None where there is no git.
    """

    def __init__(self, folder: str, listed: Callable[[], list[str] | None] | None = None) -> None:
        self._folder = folder
        self._listed_by = listed or (lambda: None)
        self._text = self._lower = ""
        self._listed = float("-inf")

    def matching(self, typed: str, most: int = _SHOWN) -> list[str]:
        """The names that have these characters in this order, the best first.

        Best is the start of a file's name, then a part of it, then a part of the path.
        """
        if monotonic() - self._listed > _FRESH:
            self._list()
        if not typed:
            return [name for name in self._text[1:].split("\n", most)[:most] if name]
        found: dict[str, None] = {}
        for pattern in _patterns(typed.lower(), self._lower):
            names = nsmallest(most, set(self._lines(pattern)), key=lambda name: (len(name), name))
            found |= dict.fromkeys(names)
            if len(found) >= most:
                break
        return list(found)[:most]

    def _list(self) -> None:
        names = self._listed_by()
        names = _names(self._folder) if names is None else names
        self._text = "".join(f"\n{name}" for name in names)
        # Of the same length, so that a place in one is a place in the other.
        self._lower = self._text.lower()
        if len(self._lower) != len(self._text):
            self._lower = "".join(c if len(c.lower()) != 1 else c.lower() for c in self._text)
        self._listed = monotonic()

    def _lines(self, pattern: re.Pattern[str]) -> Iterator[str]:
        text = self._text
        for match in pattern.finditer(self._lower):
            start, end = text.rfind("\n", 0, match.end()) + 1, text.find("\n", match.end())
            yield text[start : end if end >= 0 else None]


def _patterns(typed: str, names: str) -> Iterator[re.Pattern[str]]:
    """What a name may have, from the best to the least; each runs over all names in one go."""
    whole = re.escape(typed)
    if typed in names:
        # Each begins with plain characters, which are found fastest.
        yield re.compile(f"\n{whole}[^/\n]*+(?=\n|\\Z)")
        yield re.compile(f"/{whole}[^/\n]*+(?=\n|\\Z)")
        yield re.compile(f"{whole}[^/\n]*+(?=\n|\\Z)")
        yield re.compile(whole)
    # Possessive: a line that does not fit is left at its first missing character.
    yield re.compile("\n" + "".join(f"[^\n{re.escape(c)}]*+{re.escape(c)}" for c in typed))


def _names(folder: str) -> list[str]:
    """Relative names, folders near the top first; links are not followed."""
    found: list[str] = []
    waiting = deque([""])
    while waiting and len(found) < MOST:
        inner = waiting.popleft()
        try:
            entries = sorted(os.scandir(os.path.join(folder, inner)), key=lambda e: e.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name in _SKIPPED or not entry.name.isprintable():
                continue
            path = f"{inner}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
            else:
                found.append(path)
    return found
