"""Git's one-line pointer files, read without trust: a command or an archive may have made them.

What cannot be looked at raises OSError: it is not taken for missing.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

_MOST = 4096


class Pointer(NamedTuple):
    """Where a one-line file leads: as it is written, and really."""

    spelled: str
    real: str


class LinkedWorktree(NamedTuple):
    """The pointers of a linked worktree: its folder, the repository's git folder, the way back."""

    folder: Pointer
    common: Pointer
    back: Pointer


def linked_worktree(entry: str) -> LinkedWorktree | None:
    """The pointers of a worktree by its `.git` file; None unless the repository names it itself.

    A `.git` file alone claims nothing: the repository's own `.git/worktrees/NAME/gitdir` must
    point back at it.
    """
    folder = pointer(entry, b"gitdir:")
    if folder is None or not os.path.isfile(os.path.join(folder.real, "HEAD")):
        return None
    common = pointer(os.path.join(folder.real, "commondir"), b"")
    back = pointer(os.path.join(folder.real, "gitdir"), b"")
    if common is None or back is None or back.real != entry:
        return None
    if folder.real.rpartition(os.sep)[0] != os.path.join(common.real, "worktrees"):
        return None
    return LinkedWorktree(folder, common, back)


def pointer(file: str, label: bytes) -> Pointer | None:
    """The target of a one-line pointer file."""
    if kind(file) != "file":
        return None
    text = read_start(file, _MOST)
    if not text.startswith(label) or b"\0" in text:
        return None
    name = os.fsdecode(text[len(label) :].removeprefix(b" " if label else b"").rstrip(b"\r\n"))
    if not name:
        return None
    spelled = os.path.join(os.path.dirname(file), name)
    return Pointer(spelled, os.path.realpath(spelled))


def read_start(path: str, most: int) -> bytes:
    """The start of a regular file; nothing for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise
    except OSError:
        return b""
    try:
        return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


def kind(path: str) -> str | None:
    """The kind of what is there: `link`, `folder` or `file`."""
    try:
        mode = os.lstat(path).st_mode
    except PermissionError:
        raise
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "file"
