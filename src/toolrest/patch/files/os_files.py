"""Files of the operating system, read and written for the patch engine.

All calls work on a name inside a folder that was opened component by component without following
symlinks, so a folder swapped for a symlink after it was checked is refused, not followed.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_READ = 512 * 1024 * 1024
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(PermissionError):
    """The path policy denied access; the message is the policy's reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EACCES, reason)
        self.reason = reason


class NotAFile(OSError):
    """Something that is not a regular file was to be read."""


class FileTooLarge(OSError):
    """The file is over the size `limit` for reading."""

    def __init__(self, limit: int) -> None:
        super().__init__(errno.EFBIG, os.strerror(errno.EFBIG))
        self.limit = limit


class OsFiles:
    """The plain operating system. Close it (or use `with`) to close the folder it holds open."""

    def __init__(self, max_read: int = MAX_READ) -> None:
        self.max_read = max_read
        self._held: tuple[str, int] | None = None

    def close(self) -> None:
        """Close the folder that is held open between calls."""
        if self._held is not None:
            os.close(self._held[1])
            self._held = None

    def __enter__(self) -> OsFiles:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    # Looking

    def lstat(self, path: str) -> os.stat_result:
        """Status of a path, without following a symlink."""
        fd, name = self._at(path)
        return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def readlink(self, path: str) -> str:
        """Target of a symlink, as written."""
        fd, name = self._at(path)
        return os.readlink(name, dir_fd=fd).decode("utf-8", "surrogateescape")

    def read(self, path: str) -> bytes:
        """The content of a regular file, never waiting."""
        fd = self._open(path, _READ)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise NotAFile(errno.EINVAL, "not a regular file")
            if status.st_size > self.max_read:
                raise FileTooLarge(self.max_read)
            return self._read_all(fd)
        finally:
            os.close(fd)

    def _read_all(self, fd: int) -> bytes:
        pieces = []
        held = 0
        while piece := os.read(fd, 1 << 20):
            pieces.append(piece)
            held += len(piece)
            if held > self.max_read:
                raise FileTooLarge(self.max_read)
        return b"".join(pieces)

    # Writing

    def check_size(self, path: str, size: int) -> None:
        """Raise where a file may not become so large: nowhere, but for a policy."""

    def check_writable(self, path: str) -> None:
        """Raise unless this existing file may be written, without changing it."""
        os.close(self._open_to_write(path, _WRITE))

    def create(self, path: str, data: bytes, like: str | None) -> bool:
        """Make a new file, flushed to disk; False when not all of `like` could be kept."""
        model = None if like is None else self._model(like)
        # A file with a model is private until it has the model's owner and mode.
        fd = self._open_to_write(path, _CREATE, 0o666 if model is None else 0o600)
        try:
            _write_all(fd, data)
            kept = model is None or _take_after(fd, *model)
            os.fsync(fd)
            return kept
        except BaseException:
            quietly(self.unlink, path)
            raise
        finally:
            os.close(fd)

    def _model(self, path: str) -> tuple[os.stat_result, dict[str, bytes]]:
        try:
            fd = self._open(path, _READ)
        except PermissionError:
            # A file that may be written but not read: its attributes stay unknown.
            return self.lstat(path), {}
        try:
            return os.fstat(fd), _attributes(fd)
        finally:
            os.close(fd)

    def overwrite(self, path: str, data: bytes) -> None:
        """Give an existing file this content in place: same inode, flushed to disk."""
        fd = self._open_to_write(path, _WRITE)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NotAFile(errno.EINVAL, "not a regular file")
            # Cut only after writing: the old blocks stay allocated, so putting the old content
            # back on a full disk cannot fail for want of space.
            _write_all(fd, data)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
        finally:
            os.close(fd)

    def chmod(self, path: str, mode: int) -> None:
        """Change the permission bits of a regular file."""
        fd = self._open_to_write(path, _READ)
        try:
            os.fchmod(fd, mode)
        finally:
            os.close(fd)

    # Names

    def rename(self, old: str, new: str) -> None:
        """Put one name in the place of another, at once."""
        fd, name, other = self._pair(old, new)
        os.rename(name, other, src_dir_fd=fd, dst_dir_fd=fd)

    def link(self, old: str, new: str) -> None:
        """Make a second name for the same file."""
        fd, name, other = self._pair(old, new)
        os.link(name, other, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        fd, name = self._at(path, writing=True)
        os.unlink(name, dir_fd=fd)

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        fd, name = self._at(path, writing=True)
        os.mkdir(name, dir_fd=fd)

    def rmdir(self, path: str) -> None:
        """Remove one empty folder."""
        self.close()
        fd, name = self._at(path, writing=True)
        os.rmdir(name, dir_fd=fd)

    def sync(self, folder: str) -> None:
        """Flush the names in a folder to disk, as far as the system can."""
        at, _ = self._at(f"{folder.rstrip('/')}/x")
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # Folders

    def _open(self, path: str, flags: int) -> int:
        fd, name = self._at(path)
        return os.open(name, flags, dir_fd=fd)

    def _open_to_write(self, path: str, flags: int, mode: int = 0o666) -> int:
        fd, name = self._at(path, writing=True)
        return os.open(name, flags, mode, dir_fd=fd)

    def _at(self, path: str, *, writing: bool = False) -> tuple[int, bytes]:
        """The opened folder of a path, and the name in it. Every method calls this."""
        folder, _, name = path.rpartition("/")
        if self._held is None or self._held[0] != folder:
            fd = self._descend(folder)
            self.close()
            self._held = folder, fd
        return self._held[1], _bytes(name or ".")

    def _pair(self, old: str, new: str) -> tuple[int, bytes, bytes]:
        """The folder of two names: temporary names always lie beside their targets."""
        folder, _, other = new.rpartition("/")
        if old.rpartition("/")[0] != folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), new)
        self._at(new, writing=True)
        fd, name = self._at(old, writing=True)
        return fd, name, _bytes(other)

    def _descend(self, folder: str) -> int:
        """Open a folder, from the one that is held where it lies below that."""
        held, names = self._held, folder
        if held is not None and folder.startswith(held[0] + "/"):
            fd, names = os.dup(held[1]), folder[len(held[0]) :]
        else:
            fd = os.open("/", _FOLDER)
        for name in names.split("/")[1:]:
            try:
                below = os.open(_bytes(name), _FOLDER, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd


def quietly(call: Callable[..., object], *arguments: object) -> None:
    """Call, ignoring an OSError. (contextlib would double the imports.)"""
    try:
        call(*arguments)
    except OSError:
        return


def _bytes(name: str) -> bytes:
    """A name as the bytes on disk, whatever the locale, also where they are not UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _take_after(fd: int, like: os.stat_result, attributes: dict[str, bytes]) -> bool:
    """Copy mode, owner and extended attributes, but not setuid and setgid."""
    kept = True
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(fd, like.st_uid, like.st_gid)
        except OSError:
            kept = False
    os.fchmod(fd, stat.S_IMODE(like.st_mode) & 0o1777)
    own = _attributes(fd) if attributes else {}
    for name, value in attributes.items():
        if own.get(name) != value:
            try:
                os.setxattr(fd, name, value)
            except OSError:
                kept = False
    return kept


def _attributes(fd: int) -> dict[str, bytes]:
    if not hasattr(os, "listxattr"):
        return {}
    try:
        return {name: os.getxattr(fd, name) for name in os.listxattr(fd)}
    except OSError:
        return {}
