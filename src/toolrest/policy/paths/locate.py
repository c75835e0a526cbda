"""Locate the object that a path really names, without opening it for reading.

On Linux an O_PATH descriptor pins the object without any effect on it; the kernel tells its real
path under /proc/self/fd, and the same descriptor is opened again for reading, so nothing can be
swapped between the check and the open. Where that is missing (macOS, no /proc) the real path is
walked component by component with O_NOFOLLOW from the root, and what was opened must be what was
checked; there a device swapped in at the last moment may be opened, but is never read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

PATH_MAX = 4096
_TRIES = 8
_MAX_LINKS = 40
_O_PATH = getattr(os, "O_PATH", 0)
_FOLDER = _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class NoPlace(Exception):
    """The object has no path that leads to it: a pipe, a deleted file, another mount namespace."""


class PinnedFile(Struct):
    """A pinned object: where it really is, and what it is. Close it when done."""

    real: str
    stat: os.stat_result
    fd: int
    leaf: str | None = None
    """None when `fd` is the object itself; else its name in the folder `fd`."""

    def open(self, flags: int) -> int:
        """A new descriptor for this very object."""
        if self.leaf is None:
            return os.open(f"/proc/self/fd/{self.fd}", flags | os.O_CLOEXEC)
        fd = os.open(self.leaf, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        if not same(os.fstat(fd), self.stat):
            os.close(fd)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return fd

    def folder(self) -> int:
        """A descriptor to use as `dir_fd`; the object must be a folder."""
        if not stat.S_ISDIR(self.stat.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if self.leaf is None:
            return os.dup(self.fd)
        return self.open(_FOLDER)

    def close(self) -> None:
        """Let go of the object."""
        os.close(self.fd)

    def __enter__(self) -> PinnedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def same(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether both describe the same object."""
    return one.st_ino == other.st_ino and one.st_dev == other.st_dev


@cache
def tells_paths() -> bool:
    """Whether the kernel tells the real path of a descriptor."""
    if not _O_PATH:
        return False
    fd = os.open("/", _FOLDER)
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == "/"
    except OSError:
        return False
    finally:
        os.close(fd)


def locate(path: str) -> PinnedFile:
    """Pin what an absolute path names. Raises OSError, or NoPlace when it cannot be judged."""
    return _by_descriptor(path) if tells_paths() else _by_walk(path)


def _by_descriptor(path: str) -> PinnedFile:
    # Another program may replace or move the file at any moment, as editors do: look again.
    for _ in range(_TRIES):
        fd = os.open(path, _O_PATH | os.O_CLOEXEC)
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")
            found = PinnedFile(real, os.fstat(fd), fd)
            if _leads_to(real, found.stat):
                return found
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if not real.startswith("/"):
            break
    raise NoPlace(path)


def _leads_to(real: str, found: os.stat_result) -> bool:
    """The kernel's text may be a path of another mount namespace, or of a deleted file."""
    if not real.startswith("/"):
        return False
    try:
        return same(os.lstat(real), found)
    except OSError:
        return False


def _by_walk(path: str) -> PinnedFile:
    for _ in range(_TRIES):
        real = os.path.realpath(path, strict=True)
        try:
            return _walk(real)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
                raise
    raise NoPlace(path)


def _walk(real: str) -> PinnedFile:
    *folders, leaf = real.split("/")[1:]
    fd = os.open("/", _FOLDER)
    try:
        for name in folders:
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = below
        leaf = leaf or "."
        status = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), real)
        return PinnedFile(real, status, fd, leaf)
    except BaseException:
        os.close(fd)
        raise


def real_path(path: str) -> str:
    """The path with its symlinks followed as far as they exist; the rest stays as written."""
    if tells_paths():
        try:
            fd = os.open(path, _O_PATH | os.O_CLOEXEC)
        except OSError:
            pass
        else:
            try:
                real = os.readlink(f"/proc/self/fd/{fd}")
            finally:
                os.close(fd)
            if real.startswith("/") and not real.endswith(" (deleted)"):
                return real
    if len(os.fsencode(path)) >= PATH_MAX:
        return path  # no system call takes it, so nothing can be there
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):  # a link that was removed under realpath's hands
            return "/" + os.path.normpath(os.path.realpath(path)).lstrip("/")
    return path


def link_steps(path: str) -> Iterator[str]:
    """Every spelling that following the symlinks of `path` passes through, `path` itself too."""
    yield path
    rest = path.split("/")[:0:-1]
    here = ""
    links = 0
    while rest and links < _MAX_LINKS:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{here}/{name}")
        except (OSError, ValueError):
            here = f"{here}/{name}"
            continue
        links += 1
        if target.startswith("/"):
            here = ""
        rest.extend(reversed(target.split("/")))
        yield "/" + os.path.normpath("/".join([here, *reversed(rest)])).lstrip("/")
