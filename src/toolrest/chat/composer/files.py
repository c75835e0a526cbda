"""Names of the workspace's files for completion: listed once in a while, matched fuzzily."""

from __future__ import annotations

import os
import re
from collections import deque
from time import monotonic

_SKIPPED = {".git", ".hg", ".svn", "node_modules", ".venv", "__pycache__", ".mypy_cache"}
_MOST = 200_000
_FRESH = 10.0
_SHOWN = 8


class FileNames:
    """The files below a folder, without those of version control and package managers."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._text = ""
        self._listed = float("-inf")

    def matching(self, typed: str, most: int = _SHOWN) -> list[str]:
        """The names that have these characters in this order, the best first."""
        if monotonic() - self._listed > _FRESH:
            self._text = "\n".join(_names(self._folder))
            self._listed = monotonic()
        wanted = "[^\n]*?".join(map(re.escape, typed))
        pattern = re.compile(f"^[^\n]*?{wanted}[^\n]*$", re.IGNORECASE | re.MULTILINE)
        found = [match[0] for match in pattern.finditer(self._text)] if self._text else []
        small = typed.lower()
        return sorted(found, key=lambda name: _rank(name, small))[:most]


def _rank(name: str, typed: str) -> tuple[bool, bool, bool, int, str]:
    lower = name.lower()
    base = lower.rsplit("/", 1)[-1]
    return (
        not base.startswith(typed),
        typed not in base,
        typed not in lower,
        len(name),
        name,
    )


def _names(folder: str) -> list[str]:
    """Relative names, folders near the top first; links are not followed."""
    found: list[str] = []
    waiting = deque([""])
    while waiting and len(found) < _MOST:
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
