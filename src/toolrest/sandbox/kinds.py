"""What kind of file is at each of many names? Asked before every command, so it must be cheap.

Most of the names do not exist and share a few folders. A folder whose time of change is the same
as last time, and is not so recent that a change could hide in the clock's grain, still holds the
same names.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable

_GRAIN_NS = 3_000_000_000
"""The coarsest clock of a common file system ticks every two seconds."""

_Stamp = tuple[int, int, int]


class Kinds:
    """File types of a fixed list of names, 0 for what is not there."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._folders: dict[str, list[str]] = {}
        for path in dict.fromkeys(paths):
            self._folders.setdefault(os.path.dirname(path), []).append(path)
        self._known: dict[str, tuple[_Stamp, tuple[int, ...]]] = {}

    def look(self) -> tuple[tuple[int, ...], ...]:
        """The types now, folder by folder."""
        settled = time.time_ns() - _GRAIN_NS
        return tuple(self._in(folder, paths, settled) for folder, paths in self._folders.items())

    def _in(self, folder: str, paths: list[str], settled: int) -> tuple[int, ...]:
        try:
            info = os.stat(folder)
        except OSError:
            return (0,) * len(paths)
        stamp = (info.st_dev, info.st_ino, info.st_mtime_ns)
        known = self._known.get(folder)
        if known is not None and known[0] == stamp:
            return known[1]
        kinds = tuple(map(_kind, paths))
        if info.st_mtime_ns < settled:
            self._known[folder] = (stamp, kinds)
        return kinds


def _kind(path: str) -> int:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0
