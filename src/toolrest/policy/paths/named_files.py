"""Files that a person names on the command line, opened past what a tool may have put there.

A person's own links are followed. In a folder that tools may write none is: the name of an answer
or a report, or a folder on the way to it, could be a tool's link to anything the person can write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from toolrest.errors import Rejected
from toolrest.policy.paths.atomic_write import replace
from toolrest.policy.paths.locate import link_steps
from toolrest.policy.paths.names import inside

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK = "a link in a folder that tools may write is not followed"


def write_named(path: str, data: bytes, roots: Sequence[str]) -> None:
    """Give a file this content, or create it; OSError with the reason when that fails."""
    with _placed(path, roots) as (folder, name):
        if folder is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o666), "wb") as file:
                file.write(data)
        else:
            try:
                replace(folder, name, data, path)
            except Rejected as error:  # a pipe, a device
                raise OSError(errno.EINVAL, error.message, path) from None


def append_named(path: str, roots: Sequence[str], mode: int = 0o666) -> int:
    """A descriptor to read a file and to add to it; it is created when it is missing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with _placed(path, roots) as (folder, name):
        return _plain(folder, name, flags, mode)


def read_named(path: str, roots: Sequence[str]) -> bytes:
    """The content of a file."""
    with _placed(path, roots) as (folder, name):
        fd = _plain(folder, name, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def make_named_folder(path: str, roots: Sequence[str]) -> None:
    """Make a folder for the user alone, and those above it, unless they are there."""
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.lexists(parent):
        make_named_folder(parent, roots)
    with _placed(path, roots) as (folder, name):
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            if folder is None and not os.path.isdir(name):
                raise


def check_named(path: str, roots: Sequence[str]) -> None:
    """OSError with the reason when a file cannot be written there; nothing is changed."""
    with _placed(path, roots) as (folder, name):
        try:
            kind = os.stat(name, dir_fd=folder).st_mode
        except FileNotFoundError:
            name, kind = os.path.dirname(name) or ".", 0
            os.stat(name, dir_fd=folder)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        if not os.access(name, os.W_OK, dir_fd=folder):
            raise PermissionError(errno.EACCES, "permission denied", path)


@contextmanager
def _placed(path: str, roots: Sequence[str]) -> Iterator[tuple[int | None, str]]:
    """A folder and the name of the file in it; the folder is None where tools cannot write."""
    for step in link_steps(os.path.abspath(path)):
        covering = [root for root in roots if inside(step, root) and step != root]
        if covering:
            # Of roots in each other the outermost: what leads to the inner one may be a link too.
            root = min(covering, key=len)
            *folders, name = step[len(root.rstrip("/")) + 1 :].split("/")
            folder = _descend(root, folders, path)
            try:
                if _is_link(folder, name):
                    raise OSError(errno.ELOOP, _LINK, path)
                yield folder, name
            finally:
                os.close(folder)
            return
    yield None, path


def _descend(root: str, names: Sequence[str], shown: str) -> int:
    folder = os.open(root, _STEP)
    for name in names:
        try:
            below = os.open(name, _STEP, dir_fd=folder)
        except OSError as error:
            reason = _LINK if _is_link(folder, name) else os.strerror(error.errno or 0)
            raise OSError(error.errno, reason, shown) from None
        finally:
            os.close(folder)
        folder = below
    return folder


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _plain(folder: int | None, name: str, flags: int, mode: int = 0o666) -> int:
    """Open a file; in a folder of tools no link, and no pipe, which would wait."""
    if folder is None:
        return os.open(name, flags, mode)
    fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return fd
