"""What do git's own small files say? Read with care: anybody may have written them."""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

_POINTER_MOST = 4096
_CONFIG_MOST = 1 << 20
_WORKTREE = re.compile(rb"^\s*worktree\s*=\s*(.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_SIGNS = ("config", "hooks", "info", "commondir", "gitdir", "objects", "HEAD")
"""What tells a git folder: some of these no command can remove, and one is enough."""

_LEVELS = 4
_MOST_FOLDERS = 1024


class Nested:
    """Git folders that are inside another one: of its submodules and worktrees."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.worktrees: list[str] = []
        self.links: list[str] = []
        """Links where there could be one."""
        self.deep: list[str] = []
        """Folders that were not looked into: too far down."""
        self._left = _MOST_FOLDERS

    @property
    def is_whole(self) -> bool:
        """Whether everything was looked at."""
        return self._left >= 0

    def search_all(self, folder: str) -> None:
        """Look at everything in one git folder where there may be others."""
        self.search(os.path.join(folder, "modules"))
        self._search(os.path.join(folder, "worktrees"), self.worktrees, 1)

    def search(self, parent: str) -> None:
        """Look for submodules right in this folder, and below it."""
        self._search(parent, self.modules, _LEVELS)

    def _search(self, parent: str, found: list[str], levels: int) -> None:
        if os.path.islink(parent):
            self.links.append(parent)
            return
        for path, is_link in _folders(parent):
            self._left -= 1
            if self._left < 0:
                return
            if is_link:
                self.links.append(path)
            elif is_git_folder(path):
                found.append(path)
                self.search_all(path)
            elif levels > 1:  # a submodule's name may contain slashes
                self._search(path, found, levels - 1)
            else:
                self.deep.append(path)


class Pointer(NamedTuple):
    """Where a one-line file leads: as it is written, and really."""

    spelled: str
    real: str


def is_git_folder(path: str) -> bool:
    """Whether git could take this folder for one of its own."""
    return any(os.path.lexists(os.path.join(path, sign)) for sign in _SIGNS)


def checkouts(module: str) -> set[str]:
    """The `.git` of the checkout that belongs to a submodule's git folder, if it says so."""
    match = _WORKTREE.search(config(module))
    if match is None or not match[1] or b'"' in match[1]:
        return set()
    # Where the folder is a link, git goes by the real one; whoever wrote it may have not.
    bases = {module, os.path.realpath(module)}
    places = {os.path.normpath(os.path.join(base, os.fsdecode(match[1]))) for base in bases}
    return {os.path.join(place, ".git") for place in places if os.path.realpath(place) == place}


def pointer(file: str, label: bytes) -> Pointer | None:
    """What a one-line pointer file names."""
    if kind(file) != "file":
        return None
    text = read(file, _POINTER_MOST)
    if not text.startswith(label) or b"\0" in text:
        return None
    name = os.fsdecode(text[len(label) :].strip())
    if not name:
        return None
    spelled = os.path.join(os.path.dirname(file), name)
    return Pointer(spelled, os.path.realpath(spelled))


def config(folder: str) -> bytes:
    """A git folder's config; one that is a link is held in place, and so may be followed."""
    return read(os.path.realpath(os.path.join(folder, "config")), _CONFIG_MOST)


def read(path: str, most: int) -> bytes:
    """The start of a regular file; nothing for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


def kind(path: str) -> str | None:
    """Whether there is a link, a folder or a file."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "file"


def _folders(parent: str) -> list[tuple[str, bool]]:
    """The folders in one, and the links to folders, with whether it is one."""
    try:
        with os.scandir(parent) as entries:
            return sorted((e.path, e.is_symlink()) for e in entries if e.is_dir() or e.is_symlink())
    except OSError:
        return []
