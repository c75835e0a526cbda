"""The scan for what changed in the workspace since the last one: one walk reads what changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection
from itertools import islice

from msgspec import Struct, field

from toolrest.agent.undo.git_files import IgnoreRules, read_patterns, tracked_in
from toolrest.agent.undo.packs import Packs
from toolrest.agent.undo.records import (
    OUTSIDE,
    Changes,
    CheckpointError,
    FileRecord,
    State,
    TooSlow,
    join,
    same,
    split,
)
from toolrest.policy.paths.protected import NAMES
from toolrest.private_files import is_placeholder_entry

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_IN_MEMORY = 4 << 20
_TICK = 20_000_000
"""A file that changed so recently may change again within one tick of its time stamp."""

_INSTALLED = "packages that git ignores; they are installed again"
_HASTY_ENTRIES = 256
_HASTY_BYTES = 256 << 10
"""Looked at, and read, in a millisecond or two."""


class KeepLimits(Struct, frozen=True):
    """Limits of what is kept. Tracked files and files that a call names are kept in any case."""

    ignored_file: int = 1 << 20
    ignored_total: int = 256 << 20
    file: int = 100_000_000
    total: int = 2_000_000_000
    entries: int = 200_000


class Folder(Struct):
    """A folder to look into, as its parent's listing showed it."""

    path: str
    rules: IgnoreRules
    repository: str | None
    ignored: bool = False
    identity: tuple[int, int] | None = None


class Scan(Struct):
    """One walk. `changes` are for people; `refreshed` only saves reading a file again."""

    root: str
    state: State
    packs: Packs
    limits: KeepLimits
    skip: str = ""
    """An absolute path that is never looked into: our own home."""
    cancelled: Callable[[], bool] = lambda: False
    haste: bool = False
    """Whether to give up (TooSlow) where there is more to do than an event loop can wait for."""
    changes: Changes = field(default_factory=dict)
    refreshed: dict[str, FileRecord] = field(default_factory=dict)
    repositories: list[str] = field(default_factory=list)
    """The folders that hold a `.git`."""
    _new: dict[str, str] = field(default_factory=dict)
    _added: list[int] = field(default_factory=lambda: [0, 0])
    _tracked: dict[str, frozenset[str]] = field(default_factory=dict)
    _later: list[Folder] = field(default_factory=list)
    _visited: set[str] = field(default_factory=set)
    _closed: list[str] = field(default_factory=list)
    _mounts: list[str] = field(default_factory=list)
    _count: int = 0
    _now: int = 0

    def run(self) -> None:
        """Walk everything, ignored folders last, and keep what is new."""
        self._now = time.time_ns()
        top = Folder("", *IgnoreRules.above(self.root))
        try:
            self._walk([top])
            self._walk(self._later)
            for path in self._mounts:
                self._leave_folder(path, "another file system")
            self._look_outside()
            self._forget()
            self.packs.flush()
        except BaseException:
            self.packs.drop()
            raise

    # Folders

    def _walk(self, waiting: list[Folder]) -> None:
        while waiting:
            if self.cancelled():
                raise CheckpointError("stopped")
            folder = waiting.pop()
            if self._count > self.limits.entries:
                self._leave_folder(folder.path, f"more than {self.limits.entries:,} entries")
                continue
            try:
                fd = os.open(os.path.join(self.root, folder.path), _FOLDER)
            except OSError as error:
                if not folder.path:
                    raise CheckpointError(f"{self.root}: {error.strerror}") from None
                self._leave_folder(folder.path, error.strerror or "unreadable")
                continue
            try:
                found = os.fstat(fd)
                if folder.identity in (None, (found.st_dev, found.st_ino)):
                    self._look_into(folder, fd, found.st_dev, waiting)
                else:
                    self._leave_folder(folder.path, "it was replaced while being read")
            finally:
                os.close(fd)

    def _look_into(self, folder: Folder, fd: int, device: int, waiting: list[Folder]) -> None:
        old = self.state.folders.get(folder.path, {})
        entries = self._listed(fd)
        names = {entry.name for entry in entries}
        if ".gitignore" in names:
            _read_rules(folder, fd)
        if self._is_installed(folder, names):
            self._leave_folder(folder.path, _INSTALLED)
            return
        self._visited.add(folder.path)
        if ".git" in names:
            folder.repository = os.path.join(self.root, folder.path) if folder.path else self.root
            self.repositories.append(folder.repository)
        seen = self._look_at_entries(folder, fd, device, entries, waiting)
        for name in old.keys() - seen:
            self.changes[join(folder.path, name)] = (old[name], None)

    def _look_at_entries(
        self,
        folder: Folder,
        fd: int,
        device: int,
        entries: Collection[os.DirEntry[str]],
        waiting: list[Folder],
    ) -> set[str]:
        """Learn what the entries are; the names of those that can be kept."""
        old = self.state.folders.get(folder.path, {})
        seen: set[str] = set()
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone between the listing and the look
            if stat.S_ISDIR(status.st_mode):
                if not self._enter(folder, entry.name, status, device, waiting):
                    continue
            elif not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                continue  # sockets, pipes and devices hold nothing to keep
            seen.add(entry.name)
            known = old.get(entry.name)
            if known is None or not known.unchanged(status):
                self._learn(folder, fd, entry.name, status, known)
        return seen

    def _is_installed(self, folder: Folder, names: Collection[str]) -> bool:
        """Whether git ignores a folder of packages, which are installed again, not put back."""
        known = self.state.get(folder.path) if folder.path else None
        if known is not None and known.why == _INSTALLED:
            return True  # for good: else all in it would pass for new, and an undo would remove it
        if not ("pyvenv.cfg" in names or split(folder.path)[1] == "node_modules"):
            return False
        # `python -m venv` writes a .gitignore into the folder itself.
        ignored = folder.ignored or folder.rules.ignores(join(folder.path, "pyvenv.cfg"))
        return ignored and bool(folder.path) and not self._has_tracked(folder)

    def _has_tracked(self, folder: Folder) -> bool:
        below = os.path.join(self.root, folder.path) + "/"
        top = folder.repository
        return top is not None and any(
            os.path.join(top, path).startswith(below) for path in self._tracked_in(top)
        )

    def _listed(self, fd: int) -> list[os.DirEntry[str]]:
        with os.scandir(fd) as listing:
            entries = list(islice(listing, _HASTY_ENTRIES + 1)) if self.haste else list(listing)
        self._count += len(entries)
        if self.haste and self._count > _HASTY_ENTRIES:
            raise TooSlow("many entries")
        return entries

    def _enter(
        self,
        folder: Folder,
        name: str,
        status: os.stat_result,
        device: int,
        waiting: list[Folder],
    ) -> bool:
        """Put a folder on the list; False for those that are none of ours."""
        path = join(folder.path, name)
        if name == ".git" or os.path.join(self.root, path) == self.skip:
            return False
        if name in NAMES and is_placeholder_entry(os.path.join(self.root, path), status):
            return False  # stands there while a command runs, and goes by itself
        if status.st_dev != device:
            self._mounts.append(path)
            return True
        ignored = folder.ignored or folder.rules.ignores(path, is_dir=True)
        identity = (status.st_dev, status.st_ino)
        below = Folder(path, folder.rules, folder.repository, ignored, identity)
        (self._later if ignored else waiting).append(below)
        return True

    def _leave_folder(self, path: str, why: str) -> None:
        """What was known inside stays known: not looked at is not deleted."""
        self._closed.append(path)
        known = self.state.get(path)
        fresh = self.changes.get(path, (None, None))[1] or self.refreshed.get(path) or known
        if fresh is not None and fresh.why != why:
            if path in self.changes:
                self.changes[path] = (self.changes[path][0], fresh._replace(why=why))
            else:
                self.refreshed[path] = fresh._replace(why=why)

    def _forget(self) -> None:
        """Folders that were known and are gone took everything in them along."""
        for folder, names in self.state.folders.items():
            if folder == OUTSIDE or folder in self._visited or self._is_closed(folder):
                continue
            for name, record in names.items():
                self.changes[join(folder, name)] = (record, None)

    def _is_closed(self, folder: str) -> bool:
        return any(folder == path or folder.startswith(path + "/") for path in self._closed)

    # Files

    def _learn(
        self, folder: Folder, fd: int, name: str, now: os.stat_result, known: FileRecord | None
    ) -> None:
        path = join(folder.path, name)
        record = _plain(now)
        if record.is_link:
            with contextlib.suppress(OSError):
                record = record._replace(ref=os.readlink(name, dir_fd=fd))
        elif record.is_file:
            ignored = folder.ignored or folder.rules.ignores(path)
            why = self._too_much(folder, path, record.size, ignored)
            record = record._replace(ignored=ignored, why=why)
            if not why:
                record = self._keep(record, name, fd)
        self._note(path, known, record)

    def _note(self, path: str, known: FileRecord | None, record: FileRecord) -> None:
        if known is not None and same(known, record):
            self.refreshed[path] = record
        else:
            self.changes[path] = (known, record)

    def _too_much(self, folder: Folder, path: str, size: int, ignored: bool) -> str:
        """Why a file's content is not kept; empty when it is."""
        if path in self.state.touched:
            return ""
        most = self.limits.ignored_file if ignored else self.limits.file
        budget = self.limits.ignored_total if ignored else self.limits.total
        word = "ignored and " if ignored else ""
        why = ""
        if size > most:
            why = f"{word}over {most:,} bytes"
        elif self.state.held(ignored=ignored) + self._added[ignored] + size > budget:
            why = f"{word}over {budget:,} bytes in all"
        return "" if why and self._is_tracked(folder, path) else why

    def _is_tracked(self, folder: Folder, path: str) -> bool:
        top = folder.repository
        if top is None:
            return False
        return os.path.relpath(os.path.join(self.root, path), top) in self._tracked_in(top)

    def _tracked_in(self, top: str) -> frozenset[str]:
        if top not in self._tracked:
            if self.haste:
                raise TooSlow("git's index")
            self._tracked[top] = tracked_in(top)
        return self._tracked[top]

    def _keep(self, record: FileRecord, name: str, folder: int | None) -> FileRecord:
        """Read a file into the packs."""
        try:
            fd = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            return record._replace(why=error.strerror or "unreadable")
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return record._replace(why="it was replaced while being read")
            if self.haste and sum(self._added) + found.st_size > _HASTY_BYTES:
                raise TooSlow("much to read")
            ref, size = self._store(fd, found.st_size)
            after = os.fstat(fd)
        except OSError as error:
            return record._replace(why=error.strerror or "unreadable")
        finally:
            os.close(fd)
        self._added[record.ignored] += size
        kept = _plain(after)._replace(ref=ref, size=size, ignored=record.ignored)
        moving = size != after.st_size or after.st_ctime_ns > self._now - _TICK
        return kept._replace(ctime=0) if moving else kept

    def _store(self, fd: int, size: int) -> tuple[str, int]:
        if size > _IN_MEMORY:
            return self.packs.add_file(fd, size)
        data = os.read(fd, size + 1)
        while len(data) < size and (piece := os.read(fd, size - len(data))):
            data += piece
        digest = hashlib.sha256(data).hexdigest()
        place = self._new.get(digest) or self.state.place_of(digest)
        if place is None:
            place = self._new[digest] = self.packs.add(data, digest)
        return place, len(data)

    # Files that the walk does not come by

    def _look_outside(self) -> None:
        """Files outside, or in folders that were left out, that a call has named."""
        for path in self.state.touched | self.state.folders.get(OUTSIDE, {}).keys():
            if split(path)[0] not in self._visited:
                self._look_at(path)

    def _look_at(self, path: str) -> None:
        known = self.state.get(path)
        full = os.path.join(self.root, path)
        try:
            now = os.lstat(full)
        except OSError:
            if known is not None:
                self.changes[path] = (known, None)
            return
        if known is not None and known.unchanged(now):
            return
        self._note(path, known, self._record(_plain(now), full))

    def keep_one(self, path: str) -> None:
        """Keep one path now, whatever its size and place; it counts as unchanged."""
        self._now = time.time_ns()
        full = os.path.join(self.root, path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self.refreshed[path] = self._record(_plain(os.lstat(full)), full)

    def _record(self, record: FileRecord, full: str) -> FileRecord:
        if record.is_file:
            return self._keep(record, full, None)
        if record.is_link:
            with contextlib.suppress(OSError):
                return record._replace(ref=os.readlink(full))
        return record


def _read_rules(folder: Folder, fd: int) -> None:
    with contextlib.suppress(OSError):
        patterns = read_patterns(os.open(".gitignore", _FILE, dir_fd=fd))
        folder.rules = folder.rules.entered(folder.path, patterns)


def _plain(now: os.stat_result) -> FileRecord:
    if stat.S_ISDIR(now.st_mode):
        return FileRecord(now.st_mode, inode=now.st_ino, uid=now.st_uid, gid=now.st_gid)
    return FileRecord(
        now.st_mode,
        now.st_size,
        now.st_mtime_ns,
        now.st_ctime_ns,
        now.st_ino,
        now.st_uid,
        now.st_gid,
    )
