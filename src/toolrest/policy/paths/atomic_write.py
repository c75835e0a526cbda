"""Replace a file's content at once, inside a folder that is already open.

The new content is written beside the old and renamed over it: a reader sees one or the other,
and a symlink or hard link at that name is replaced, never written through.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from toolrest.errors import Rejected
from toolrest.private_files import write_all


def replace(folder: int, name: str, data: bytes, shown: str) -> None:
    """Give the file `name` in the folder descriptor this content, keeping its mode and owner."""
    old = _existing(folder, name, shown)
    temporary = f".toolrest-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=folder)
    try:
        try:
            write_all(fd, data)
            if old is not None:
                _take_after(fd, old)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _existing(folder: int, name: str, shown: str) -> os.stat_result | None:
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    if stat.S_ISLNK(old.st_mode):
        # Its links were followed already, so this one came later or leads to itself.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), shown)
    if not stat.S_ISREG(old.st_mode):
        raise Rejected(f"{shown} cannot be written: it is not a regular file")
    return old


def _take_after(fd: int, old: os.stat_result) -> None:
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        # Only root may give files away; content and mode matter more than a refused owner.
        with contextlib.suppress(OSError):
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))
