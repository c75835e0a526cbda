"""Placeholders: they keep a name that does not exist from being created.

That takes a mount on it, and a mount needs something to sit on. So while commands run, each missing
protected name is a placeholder, recorded and made here and removed when the last command has ended:
an empty folder, or for a file an unbound socket, since git lists neither of them. Inside the
sandbox an empty file is mounted on the socket. Sessions on the same root share the record through
file locks: a mount point that another session still uses is left alone: removing it would take
the mount away from under a running command. What a session that died left behind is removed by its
helper, or by the next session (`process/helper/litter.py`).
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EINVAL, ENOTSUP, ETIMEDOUT
from hashlib import sha256
from secrets import token_hex

from toolrest.private_files import make_private
from toolrest.process.helper import litter
from toolrest.process.helper.litter import Entry, lock
from toolrest.sandbox.guard.placeholder_folders import FolderPool, mark, placeholder_mtime, renamer

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PATIENCE = 5.0
_NOTHING: Mapping[str, bytes | None] = {}
UNLISTED = (".mcp.json", ".envrc")
"""Files of a project for which a socket stands: git would list, and add, an empty file."""
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMELESS = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC


class MountPoints:
    """The placeholders of one folder, shared by every session that makes some in it.

    A folder's and not a root's: two worktrees are two roots and share a git folder. All paths
    are real ones.
    """

    def __init__(self, registry: str, folder: str) -> None:
        make_private(registry)
        name = sha256(os.fsencode(folder)).hexdigest()[:32]
        self._registry = registry
        self._mark = placeholder_mtime(registry)
        self._pool = FolderPool(os.path.join(registry, "spare"), self._mark)
        self._socket = os.path.join(registry, "socket")
        self._guard_path = os.path.join(registry, name + litter.GUARD)
        self._record_path = os.path.join(registry, name + litter.RECORD)
        self._record = -1
        self._guard = -1
        self._taken: set[str] = set()
        """Names that existed when they were last asked for: looked at before anything is made."""
        self._users = 0
        self._mutex = threading.Lock()

    @property
    def record(self) -> int:
        """The descriptor of the record; its lock is held while commands run on the placeholders."""
        if self._record < 0:
            self._record = self._opened(self._record_path)
        return self._record

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
            if self._users == 0:
                self._open()
            self._users += 1
            made: list[str] = []
            free = {**unless_there, **wanted}
            for path in self._taken.intersection(free):
                if os.path.lexists(path):
                    del free[path]
            try:
                self._note((self._mark, os.fsencode(path)) for path in free)
                self._make_all(free, made)
            except OSError:
                self._users -= 1
                if self._users == 0:
                    self._close()
                raise
        return (*made, *(path for path in wanted if path not in made and os.path.lexists(path)))

    def release(self) -> None:
        """One command has ended; the last one of the last session cleans up."""
        with self._mutex, self._guarded():
            if self._users == 0:
                return
            self._users -= 1
            if self._users == 0:
                self._close()

    def _open(self) -> None:
        """Join the users of the record; the first one removes what a crash left behind."""
        if lock(self.record, fcntl.LOCK_EX):
            self._sweep()
        fcntl.flock(self.record, fcntl.LOCK_SH)

    def _close(self) -> None:
        """Leave the users of the record; the last one removes the placeholders."""
        try:
            if lock(self.record, fcntl.LOCK_EX):
                self._sweep()
        finally:  # others wait for it
            fcntl.flock(self.record, fcntl.LOCK_UN)

    def _opened(self, path: str) -> int:
        """A file of the registry, open as long as this object lives."""
        fd = os.open(path, _LOCK_FLAGS, 0o600)
        weakref.finalize(self, os.close, fd)
        return fd

    def _sweep(self) -> None:
        data = litter.read(self.record)
        litter.for_each(reversed(litter.parse(data)), self._remove)
        if data.strip(b"\0"):  # never shortened: freeing blocks is slow on some disks
            os.pwrite(self.record, bytes(len(data)), 0)

    def _note(self, entries: Iterable[Entry]) -> None:
        """Write down what will be made: whatever a kill interrupts is known to the next sweep."""
        data = litter.read(self.record).rstrip(b"\0")
        data += b"\0" if data else b""
        new = b"".join(line for line in map(litter.line, entries) if line not in data)
        if new:
            os.pwrite(self.record, new, len(data))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """One session at a time looks at the record and changes it."""
        if self._guard < 0:
            self._guard = self._opened(self._guard_path)
        until = time.monotonic() + _PATIENCE
        while not lock(self._guard, fcntl.LOCK_EX):
            if time.monotonic() > until:
                raise TimeoutError(ETIMEDOUT, "another session holds the lock", self._guard_path)
            time.sleep(0.002)
        try:
            yield
        finally:
            fcntl.flock(self._guard, fcntl.LOCK_UN)

    def _make_all(self, wanted: Mapping[str, bytes | None], made: list[str]) -> None:
        """Folders, and files with their content; nothing where a name is taken.

        The way there is walked without following links.
        """
        folder, fd = "", -1
        try:
            for path, content in wanted.items():
                parent = os.path.dirname(path)
                if parent != folder or fd < 0:
                    if fd >= 0:
                        os.close(fd)
                        fd = -1
                    folder, fd = parent, litter.open_folder(os.fsencode(parent))
                if self._make(fd, path, content):
                    made.append(path)
                    self._taken.discard(path)
        finally:
            if fd >= 0:
                os.close(fd)

    def _make(self, folder: int, path: str, content: bytes | None) -> bool:
        try:
            try:
                self._create(folder, path, content)
            except PermissionError:
                with _writable(folder):
                    self._create(folder, path, content)
        except FileExistsError:
            self._taken.add(path)
            return False
        except OSError:
            if _beyond_reach(folder):
                return False
            raise
        return True

    def _create(self, folder: int, path: str, content: bytes | None) -> None:
        """A placeholder appears in its place marked, or not at all."""
        try:
            if content is None:
                self._pool.place(folder, path)
            elif os.path.basename(path) in UNLISTED:
                self._link_socket(folder, path)
            else:
                self._link_file(folder, path, content)
        except FileExistsError:
            raise
        except OSError:  # the registry is on another file system, for one
            self._create_beside(folder, path, content)

    def _link_socket(self, folder: int, path: str) -> None:
        """One more name for a socket of ours, to which nothing can be written."""
        if not _is_marked_socket(self._socket, self._mark):
            draft = f"{self._socket}-{token_hex(8)}"
            os.mknod(draft, stat.S_IFSOCK | 0o644)
            mark(draft, self._mark)
            _check_marked(os.lstat(draft), self._mark)
            os.rename(draft, self._socket)
        name = os.path.basename(path)
        os.link(self._socket, name, dst_dir_fd=folder, follow_symlinks=False)

    def _link_file(self, folder: int, path: str, content: bytes) -> None:
        """A file that has no name until it is complete."""
        fd = os.open(".", _NAMELESS, 0o644, dir_fd=folder)
        try:
            os.write(fd, content)
            mark(fd, self._mark)
            _check_marked(os.fstat(fd), self._mark)
            os.link(f"/proc/self/fd/{fd}", os.path.basename(path), dst_dir_fd=folder)
        finally:
            os.close(fd)

    def _create_beside(self, folder: int, path: str, content: bytes | None) -> None:
        """Make a draft, of which the record has the name, and rename that."""
        parent, name = os.path.split(path)
        draft = litter.DRAFT + token_hex(8)
        self._note([(litter.BY_NAME, os.fsencode(os.path.join(parent, draft)))])
        place = f"/proc/self/fd/{folder}/{draft}"
        try:
            self._make_new(folder, draft, path, content)
            renamer()(os.fsencode(place), folder, os.fsencode(name))
        except OSError as error:
            with suppress(OSError):
                (os.rmdir if content is None else os.unlink)(place)
            if error.errno != EINVAL:
                raise
            self._make_new(folder, name, path, content)  # it cannot rename without replacing

    def _make_new(self, folder: int, name: str, path: str, content: bytes | None) -> None:
        if content is None:
            os.mkdir(name, 0o755, dir_fd=folder)
        elif os.path.basename(path) not in UNLISTED or not _make_socket(folder, name):
            fd = os.open(name, _NEW_FLAGS, 0o644, dir_fd=folder)
            os.write(fd, content)
            os.close(fd)
        with suppress(OSError):
            os.utime(name, ns=(self._mark, self._mark), dir_fd=folder, follow_symlinks=False)
        at = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
        if at != self._mark:  # the file system does not keep such times
            self._note([(at, os.fsencode(path))])

    def _remove(self, at: int, path: bytes, place: bytes) -> None:
        """Take a placeholder away if it is still the one we made and nothing was put into it."""
        info = os.lstat(place)
        known = info.st_mtime_ns == at or self._pool.knows(path, place, info)
        if stat.S_ISDIR(info.st_mode) and known:
            self._pool.reclaim(path, place, info)
        else:
            litter.remove((at, place), self._registry)


def _is_marked_socket(path: str, at: int) -> bool:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISSOCK(info.st_mode) and info.st_mtime_ns == at


def _check_marked(info: os.stat_result, at: int) -> None:
    if info.st_mtime_ns != at:
        raise OSError(ENOTSUP, os.strerror(ENOTSUP))


def _make_socket(folder: int, name: str) -> bool:
    try:
        os.mknod(name, stat.S_IFSOCK | 0o644, dir_fd=folder)
    except FileExistsError:
        raise
    except OSError:
        return False  # a file system without sockets
    return True


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
