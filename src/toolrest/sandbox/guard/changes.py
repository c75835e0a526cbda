"""Changes between commands: file types of guarded names, and hidden files that are new.

Both are looked up before every command, so that must be cheap. Most of the names do not exist and
share a few folders. A folder whose time of change is the same as last time, and is not so recent
that a change could hide in the clock's grain, still holds the same names.

All roots were searched for `.env*` and the like at the start, which is too slow to do again for
every command. Where such a file appears later is mostly right in a root, or beside another one.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator

from toolrest.policy.paths.names import unique
from toolrest.sandbox.errors import unseen
from toolrest.sandbox.policy import SandboxPolicy

_GRAIN_NS = 3_000_000_000
"""The coarsest clock of a common file system ticks every two seconds."""

_Stamp = tuple[int, int, int]


class _Folder:
    """The names in one folder, and what was found there when it was last looked into."""

    __slots__ = ("above", "known", "nothing", "parent", "path", "paths", "stamp")

    def __init__(self, path: str, paths: list[str]) -> None:
        self.path = path
        self.parent = os.path.dirname(path)
        self.paths = paths
        self.nothing = (0,) * len(paths)
        self.known: tuple[int, ...] = ()
        self.stamp: _Stamp | None = None
        self.above: _Stamp | None = None
        """Where the folder was not there: what its parent looked like then."""


class FileKindCache:
    """File types of a fixed list of names, 0 for what is not there."""

    def __init__(self, paths: Iterable[str]) -> None:
        folders: dict[str, list[str]] = {}
        for path in dict.fromkeys(paths):
            folders.setdefault(os.path.dirname(path), []).append(path)
        # Parents before what is in them.
        self._folders = [_Folder(path, names) for path, names in sorted(folders.items())]

    def snapshot(self) -> tuple[tuple[int, ...], ...]:
        """The types now, folder by folder."""
        settled = time.time_ns() - _GRAIN_NS
        same: dict[str, _Stamp] = {}
        found: list[tuple[int, ...]] = []
        for folder in self._folders:
            above = same.get(folder.parent)
            if above is not None and folder.above == above:
                found.append(folder.nothing)
                continue
            try:
                info = os.stat(folder.path)
            except OSError:
                folder.above = above
                found.append(folder.nothing)
                continue
            folder.above = None
            stamp = (info.st_dev, info.st_ino, info.st_mtime_ns)
            if stamp[2] < settled:
                same[folder.path] = stamp
            found.append(folder.known if folder.stamp == stamp else _looked(folder, stamp, settled))
        return tuple(found)


def _looked(folder: _Folder, stamp: _Stamp, settled: int) -> tuple[int, ...]:
    kinds = tuple(map(kind_of, folder.paths))
    if stamp[2] < settled:
        folder.stamp, folder.known = stamp, kinds
    return kinds


def kind_of(path: str) -> int:
    """The file type of one name, 0 when it is not there."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


def identity_of(path: str) -> tuple[int, int] | None:
    """Device and inode of what is at a path, or None."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


_MOST_FOLDERS = 32


class NewlyHidden:
    """Looks into a few folders before each command."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self._known = frozenset(policy.hidden)
        beside = (os.path.dirname(path) for path in policy.hidden if policy.shown_root(path))
        folders = unique((*policy.roots, policy.workspace, *beside))[:_MOST_FOLDERS]
        tests = [(folder, policy.hides(folder)) for folder in folders] if policy.hides else []
        self._tests = [(folder, test) for folder, test in tests if test is not None]

    def look(self, ours: Collection[str]) -> tuple[str, ...]:
        """The hidden files that were not there at the start; `ours` are placeholders."""
        return tuple(sorted(set(self._found()).difference(self._known, ours)))

    def _found(self) -> Iterator[str]:
        for folder, hidden in self._tests:
            try:
                names = os.listdir(folder)
            except PermissionError as error:
                raise unseen(folder) from error  # a command may have closed it
            except OSError:
                continue
            for name in names:
                if hidden(name):
                    yield os.path.join(folder, name)
