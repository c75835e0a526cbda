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
        self._folders = dict(sorted(self._folders.items()))  # parents before what is in them
        self._known: dict[str, tuple[_Stamp, tuple[int, ...]]] = {}
        self._missing: dict[str, _Stamp] = {}
        """Folders that were not there, with what their parent looked like then."""

    def look(self) -> tuple[tuple[int, ...], ...]:
        """The types now, folder by folder."""
        settled = time.time_ns() - _GRAIN_NS
        same: dict[str, _Stamp] = {}
        return tuple(
            self._in(folder, paths, settled, same) for folder, paths in self._folders.items()
        )

    def _in(
        self, folder: str, paths: list[str], settled: int, same: dict[str, _Stamp]
    ) -> tuple[int, ...]:
        parent = same.get(os.path.dirname(folder))
        if parent is not None and self._missing.get(folder) == parent:
            return (0,) * len(paths)
        try:
            info = os.stat(folder)
        except OSError:
            if parent is not None:
                self._missing[folder] = parent
            return (0,) * len(paths)
        self._missing.pop(folder, None)
        stamp = (info.st_dev, info.st_ino, info.st_mtime_ns)
        if info.st_mtime_ns < settled:
            same[folder] = stamp
        known = self._known.get(folder)
        if known is not None and known[0] == stamp:
            return known[1]
        kinds = tuple(map(_kind, paths))
        if folder in same:
            self._known[folder] = (stamp, kinds)
        return kinds


def _kind(path: str) -> int:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0
