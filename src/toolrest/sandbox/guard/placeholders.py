"""Placeholders: they keep a name that does not exist from being created.

That takes a mount on it, and a mount needs something to sit on. So while commands run, each missing
protected name is an empty folder (git does not even notice those), made and recorded here and
removed when the last command has ended. Sessions on the same root share the record through file
locks: a mount point that another session still uses is left alone, since removing it would take
the mount away from under a running command. What a crashed session left behind is removed by
the next one.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import ETIMEDOUT
from hashlib import sha256
from typing import NamedTuple

from toolrest.policy.paths.names import inside
from toolrest.private_files import make_private
from toolrest.sandbox.guard.placeholder_folders import FolderPool, mark, placeholder_mtime

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PATIENCE = 5.0
_REMEMBERED = 8
_NOTHING: Mapping[str, bytes | None] = {}
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PlaceholderEntry(NamedTuple):
    """A placeholder that we made, and how to know it again."""

    path: str
    device: int
    inode: int
    size: int


class MountPoints:
    """The placeholders of one folder, shared by every session that makes some in it.

    A folder's and not a root's: two worktrees are two roots and share a git folder. The way to it
    is walked from `root`, above which no command can write.
    """

    def __init__(self, registry: str, root: str, folder: str | None = None) -> None:
        make_private(registry)
        name = sha256(os.fsencode(folder or root)).hexdigest()[:32]
        self._root = root
        self._mark = placeholder_mtime(registry)
        self._pool = FolderPool(os.path.join(registry, "spare"), self._mark)
        self._guard_path = os.path.join(registry, f"{name}.lock")
        self._record_path = os.path.join(registry, f"{name}.json")
        self._record = -1
        self._guard = -1
        self._read: dict[bytes, list[PlaceholderEntry]] = {}
        self._written: tuple[list[PlaceholderEntry], bytes] = ([], b"[]")
        self._taken: set[str] = set()
        """Names that existed when they were last asked for: looked at before anything is made."""
        self._size = 0
        """Of the record, as it was when it was last read."""
        self._before: list[PlaceholderEntry] = []
        """The record as it was when the names of one command were about to be taken."""
        self._users = 0
        self._mutex = threading.Lock()

    @property
    def in_use(self) -> bool:
        """Whether a command of this session may still be running on them."""
        return self._users > 0

    def acquire(
        self,
        folders: Sequence[str],
        files: Mapping[str, bytes | None],
        unless_there: Mapping[str, bytes | None] = _NOTHING,
    ) -> tuple[str, ...]:
        """Make the missing placeholders for one more command; the names that exist now.

        What is in `unless_there`, folders without and files with a content, is of no concern
        where it exists: only what was made of it counts.

        Raises OSError when one cannot be made although a command might make it.
        """
        wanted = {**dict.fromkeys(folders), **files}
        with self._mutex, self._guarded():
            before = self._before = self._open() if self._users == 0 else self._load()
            self._users += 1
            made: list[PlaceholderEntry] = []
            try:
                self._make_all({**unless_there, **wanted}, made)
            except OSError:
                self._users -= 1
                raise
            finally:
                if made:
                    self._save([*before, *made])
                if self._users == 0:
                    self._close()
        ours = [entry.path for entry in made]
        return (*ours, *(path for path in wanted if path not in ours and os.path.lexists(path)))

    def release(self) -> None:
        """One command has ended; the last one of the last session cleans up."""
        with self._mutex, self._guarded():
            if self._users == 0:
                return
            self._users -= 1
            if self._users == 0:
                self._close()

    def _open(self) -> list[PlaceholderEntry]:
        """Join the users of the record; the first one removes what a crash left behind."""
        if self._record < 0:
            self._record = self._opened(self._record_path)
        entries = self._load()
        if _lock(self._record, fcntl.LOCK_EX):
            entries = self._sweep(entries)
        fcntl.flock(self._record, fcntl.LOCK_SH)
        return entries

    def _close(self) -> None:
        """Leave the users of the record; the last one removes the placeholders."""
        try:
            if _lock(self._record, fcntl.LOCK_EX):
                self._sweep(self._load())
        finally:  # others wait for it
            fcntl.flock(self._record, fcntl.LOCK_UN)

    def _opened(self, path: str) -> int:
        """A file of the registry, open as long as this object lives."""
        fd = os.open(path, _LOCK_FLAGS, 0o600)
        weakref.finalize(self, os.close, fd)
        return fd

    def _sweep(self, entries: list[PlaceholderEntry]) -> list[PlaceholderEntry]:
        for entry in reversed(entries):
            self._remove(entry)
        if entries:
            self._save([])
        return []

    def _load(self) -> list[PlaceholderEntry]:
        self._size = os.fstat(self._record).st_size
        data = os.pread(self._record, self._size, 0)
        found = self._read.get(data)
        if found is None:
            try:
                found = [
                    PlaceholderEntry(str(p), int(d), int(i), int(n))
                    for p, d, i, n in json.loads(data)
                ]
            except (ValueError, TypeError):
                found = []
            if len(self._read) > _REMEMBERED:
                self._read.clear()
            self._read[data] = found
        return found

    def _save(self, entries: list[PlaceholderEntry]) -> None:
        """Overwritten in place and never shortened: freeing blocks is slow on some disks."""
        if entries and entries != self._written[0]:
            self._written = (entries, json.dumps(entries).encode())
        data = (self._written[1] if entries else b"[]").ljust(self._size)
        os.pwrite(self._record, data, 0)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """One session at a time looks at the record and changes it."""
        if self._guard < 0:
            self._guard = self._opened(self._guard_path)
        until = time.monotonic() + _PATIENCE
        while not _lock(self._guard, fcntl.LOCK_EX):
            if time.monotonic() > until:
                raise TimeoutError(ETIMEDOUT, "another session holds the lock", self._guard_path)
            time.sleep(0.002)
        try:
            yield
        finally:
            fcntl.flock(self._guard, fcntl.LOCK_UN)

    def _make_all(self, wanted: Mapping[str, bytes | None], made: list[PlaceholderEntry]) -> None:
        """Folders, and files with their content; nothing where a name is taken.

        The way there is walked without following links: a command may have put one anywhere it
        could write, and this process is not confined.
        """
        folder, fd = "", -1
        try:
            for path, content in wanted.items():
                if path in self._taken and os.path.lexists(path):
                    continue
                parent, name = os.path.split(path)
                if parent != folder or fd < 0:
                    if fd >= 0:
                        os.close(fd)
                        fd = -1
                    folder, fd = parent, _walk(self._root, parent)
                entry = self._make(fd, path, name, content)
                if entry is not None:
                    made.append(entry)
                    self._taken.discard(path)
        finally:
            if fd >= 0:
                os.close(fd)

    def _make(
        self, folder: int, path: str, name: str, content: bytes | None
    ) -> PlaceholderEntry | None:
        try:
            try:
                known = self._create(folder, path, name, content)
            except PermissionError:
                with _writable(folder):
                    known = self._create(folder, path, name, content)
            if known is None:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                known = (info.st_dev, info.st_ino)
        except FileExistsError:
            orphan = self._orphan(folder, path, name, content)
            if orphan is None:
                self._taken.add(path)
            return orphan
        except OSError:
            if _beyond_reach(folder):
                return None
            raise
        return PlaceholderEntry(path, *known, 0 if content is None else len(content))

    def _create(
        self, folder: int, path: str, name: str, content: bytes | None
    ) -> tuple[int, int] | None:
        if content is None:
            return self._pool.place(folder, path, name)
        fd = os.open(name, _NEW_FLAGS, 0o644, dir_fd=folder)
        try:
            os.write(fd, content)
            mark(fd, self._mark)
        finally:
            os.close(fd)
        return None

    def _orphan(
        self, folder: int, path: str, name: str, content: bytes | None
    ) -> PlaceholderEntry | None:
        """A placeholder that a session of ours made and, killed in that moment, did not record."""
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        if info.st_mtime_ns != self._mark or any(entry.path == path for entry in self._before):
            return None
        size = 0 if content is None else len(content)
        if stat.S_ISDIR(info.st_mode):
            ours = content is None and not os.listdir(path)
        else:
            ours = stat.S_ISREG(info.st_mode) and content is not None and info.st_size == size
        return PlaceholderEntry(path, info.st_dev, info.st_ino, size) if ours else None

    def _remove(self, entry: PlaceholderEntry) -> None:
        """Take a placeholder away if it is still the one we made and nothing was put into it."""
        try:
            info = os.lstat(entry.path)
            if (info.st_dev, info.st_ino) != (entry.device, entry.inode):
                return
            if stat.S_ISDIR(info.st_mode):
                self._pool.reclaim(entry.path, info)
            elif info.st_size == entry.size:
                os.unlink(entry.path)
        except OSError:
            return


def _lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _walk(root: str, folder: str) -> int:
    """Open a folder beneath the root, refusing links on the way."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    if not inside(folder, root):
        return os.open(folder, flags)
    fd = os.open(root, flags)
    for name in filter(None, folder[len(root) :].split("/")):
        try:
            step = os.open(name, flags, dir_fd=fd)
        finally:
            os.close(fd)
        fd = step
    return fd


@contextmanager
def _writable(folder: int) -> Iterator[None]:
    """Give ourselves the right to write to a folder of ours for a moment, as its owner can."""
    path, mode = f"/proc/self/fd/{folder}", os.fstat(folder).st_mode & 0o7777
    os.chmod(path, mode | stat.S_IRWXU)
    try:
        yield
    finally:
        os.chmod(path, mode)


def _beyond_reach(folder: int) -> bool:
    """Whether no command of this user can create anything here either."""
    info = os.fstat(folder)
    if os.fstatvfs(folder).f_flag & os.ST_RDONLY:
        return True
    mine = info.st_uid == os.geteuid()  # an owner can give himself the right to write
    return not mine and not os.access(f"/proc/self/fd/{folder}", os.W_OK)
