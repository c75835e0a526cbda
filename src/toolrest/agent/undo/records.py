"""Records of paths: kind, stat for cheap comparing, where the bytes are; errors of checkpoints."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from toolrest.errors import ToolrestError

OUTSIDE = "/"
"""The key of files outside the workspace; their names are absolute paths."""


class FileRecord(NamedTuple):
    """One path at one moment. `ref` says where the content is kept, or is a symlink's target."""

    mode: int
    size: int = 0
    mtime: int = 0
    ctime: int = 0
    inode: int = 0
    uid: int = 0
    gid: int = 0
    ref: str | None = None
    ignored: bool = False
    why: str = ""
    """Why the content is not kept; empty when it is."""

    @property
    def is_dir(self) -> bool:
        """A folder."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """A regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """A symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def digest(self) -> str | None:
        """SHA-256 of a kept file's content."""
        return self.ref.split(".", 1)[0] if self.is_file and self.ref else None

    def unchanged(self, now: os.stat_result) -> bool:
        """Whether the path looks as it did, so that it need not be read again."""
        if self.mode != now.st_mode or self.uid != now.st_uid or self.gid != now.st_gid:
            return False
        if stat.S_ISDIR(now.st_mode):
            return True
        return (
            self.mtime == now.st_mtime_ns
            and self.size == now.st_size
            and self.inode == now.st_ino
            and self.ctime == now.st_ctime_ns
        )


Change: TypeAlias = tuple[FileRecord | None, FileRecord | None]
"""Before and after; None where there was nothing."""
Changes: TypeAlias = dict[str, Change]


def same(one: FileRecord | None, other: FileRecord | None) -> bool:
    """Whether two records mean the same content, kind, mode and owner."""
    if one is None or other is None:
        return one is other
    if (one.mode, one.uid, one.gid) != (other.mode, other.uid, other.gid):
        return False
    if one.is_file:
        return _same_bytes(one, other)
    return one.is_dir or one.ref == other.ref


def _same_bytes(one: FileRecord, other: FileRecord) -> bool:
    if one.ref is not None and other.ref is not None:
        return one.digest == other.digest
    # Content that was not kept is compared by its stat, which keeping it later does not change.
    return (one.size, one.mtime, one.inode) == (other.size, other.mtime, other.inode)


class State:
    """Every known path of a workspace, by folder."""

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, FileRecord]] = {}
        self.touched: set[str] = set()
        """Paths that a call said it would write: kept whatever their size and place."""
        self._sums: list[int] | None = None
        self._places: dict[str, str] | None = None

    def get(self, path: str) -> FileRecord | None:
        """What is known of a path."""
        folder, name = split(path)
        return self.folders.get(folder, {}).get(name)

    def put(self, path: str, record: FileRecord | None) -> None:
        """Learn or forget a path."""
        folder, name = split(path)
        if self._sums is not None:
            self._count(self.folders.get(folder, {}).get(name), -1)
            self._count(record, 1)
        if record is not None:
            self.folders.setdefault(folder, {})[name] = record
        elif folder in self.folders:
            self.folders[folder].pop(name, None)
            if not self.folders[folder]:
                del self.folders[folder]

    def held(self, *, ignored: bool) -> int:
        """Bytes kept of the files that are there now, ignored ones or the others."""
        if self._sums is None:
            self._sums, self._places = [0, 0], {}
            for _, record in self.records():
                self._count(record, 1)
        return self._sums[ignored]

    def place_of(self, digest: str) -> str | None:
        """Where a content is kept already."""
        self.held(ignored=False)
        return self._places.get(digest) if self._places is not None else None

    def _count(self, record: FileRecord | None, sign: int) -> None:
        if record is None or record.ref is None or not record.is_file:
            return
        if self._sums is not None and self._places is not None:
            self._sums[record.ignored] += sign * record.size
            if sign > 0:
                self._places[record.ref.split(".", 1)[0]] = record.ref

    def records(self) -> Iterable[tuple[str, FileRecord]]:
        """Every path with its record."""
        for folder, names in self.folders.items():
            for name, record in names.items():
                yield join(folder, name), record


def split(path: str) -> tuple[str, str]:
    """The folder's key and the name in it."""
    if path.startswith("/"):
        return OUTSIDE, path
    folder, _, name = path.rpartition("/")
    return folder, name


def join(folder: str, name: str) -> str:
    """The inverse of `split`."""
    return f"{folder}/{name}" if folder and folder != OUTSIDE else name


def parse(value: object) -> FileRecord | None:
    """A record from its JSON form."""
    return None if value is None else FileRecord(*value)  # type: ignore[misc]


class CheckpointError(ToolrestError):
    """The workspace's state could not be saved or read; the message says what to do."""


class TooSlow(CheckpointError):
    """Raised in haste, before anything is done: it would take too long to wait for."""


class UndoError(ToolrestError):
    """The undo took nothing back; the message says why."""
