"""Git's pointer files, config and folders, read without trust: a command may have written them.

What cannot be looked at is not taken for missing: a command may have seen to it that it cannot.
"""

from __future__ import annotations

import os
import re
from errno import ELOOP, ENAMETOOLONG

from toolrest import git_pointers
from toolrest.git_pointers import LinkedWorktree, Pointer
from toolrest.sandbox.errors import SandboxUnavailable, unseen

_CONFIG_MOST = 1 << 16
_WORKTREE = re.compile(rb"[ \t]*(?:\[[^\]]*\][ \t]*)?worktree[ \t]*=(.*)", re.IGNORECASE)
_SIGNS_FILES = ("config", "commondir", "gitdir", "HEAD")
_SIGNS_FOLDERS = ("hooks", "info", "objects")
"""What tells a git folder: some of these no command can remove, and one is enough."""

_INSIDE = frozenset(
    [
        "branches",
        "hooks",
        "info",
        "lfs",
        "logs",
        "modules",
        "objects",
        "refs",
        "rr-cache",
        "worktrees",
    ]
)
"""Folders of git's own, in which there is no other git folder unless it looks like one."""

_LEVELS = 16
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
        self.searched: list[str] = []
        self._left = _MOST_FOLDERS

    @property
    def is_whole(self) -> bool:
        """Whether everything was looked at."""
        return self._left >= 0

    def search_all(self, folder: str, levels: int = _LEVELS) -> None:
        """Look at everything in one git folder where there may be others."""
        self.search(os.path.join(folder, "modules"), levels)
        self._search(os.path.join(folder, "worktrees"), self.worktrees, levels)

    def search(self, parent: str, levels: int = _LEVELS) -> None:
        """Look for submodules right in this folder, and below it."""
        self._search(parent, self.modules, levels)

    def _search(self, parent: str, found: list[str], levels: int, *, in_one: bool = False) -> None:
        """`in_one`: the parent looks like a git folder itself, and may only lead to some."""
        if not in_one:  # git writes to its own folders all the time
            self.searched.append(parent)
        if kind(parent) == "link":
            self.links.append(parent)
            return
        for path, is_link in _folders(parent):
            if in_one and _is_own(path, is_link):
                continue
            self._left -= 1
            if self._left < 0:
                return
            if is_link:
                self.links.append(path)
            elif levels <= 1:
                self.deep.append(path)
            elif is_git_folder(path):
                found.append(path)
                self.search_all(path, levels - 1)
                self._search(path, found, levels - 1, in_one=True)
            else:  # a submodule's name may contain slashes
                self._search(path, found, levels - 1)


def is_git_folder(path: str) -> bool:
    """Whether git could take this folder for one of its own."""
    if any(kind(os.path.join(path, sign)) in ("file", "link") for sign in _SIGNS_FILES):
        return True
    return any(kind(os.path.join(path, sign)) is not None for sign in _SIGNS_FOLDERS)


def _is_own(path: str, is_link: bool) -> bool:
    """Whether this is a part of a git folder and no other git folder.

    `logs` has a HEAD and `objects` an `info`, but only a git folder has a config.
    """
    if os.path.basename(path) not in _INSIDE:
        return False
    return is_link or kind(os.path.join(path, "config")) not in ("file", "link")


def real(path: str) -> str:
    """The real path; some links of `/proc` cannot even be followed."""
    try:
        return os.path.realpath(path)
    except OSError as error:
        raise unseen(path) from error


def checkouts(module: str) -> set[str]:
    """The `.git` of the checkouts that a submodule's git folder says belong to it."""
    found: set[str] = set()
    # Where the folder is a link, git resolves from the real one; other programs may not.
    for base in {module, real(module)}:
        for line in config(module).split(b"\n"):
            match = _WORKTREE.match(line)
            value = match[1].strip().strip(b'"').replace(b"\\\\", b"\\") if match else b""
            if not value or b"\0" in value:
                continue
            place = os.path.normpath(os.path.join(base, os.fsdecode(value)))
            if real(place) == place:
                found.add(os.path.join(place, ".git"))
    return found


def pointer(file: str, label: bytes) -> Pointer | None:
    """The target of a one-line pointer file."""
    try:
        return git_pointers.pointer(file, label)
    except OSError as error:
        raise unseen(file) from error


def linked_worktree(entry: str) -> LinkedWorktree | None:
    """The pointers of a worktree that its repository names itself."""
    try:
        return git_pointers.linked_worktree(entry)
    except OSError as error:
        raise unseen(entry) from error


def config(folder: str) -> bytes:
    """A git folder's config; one that is a link is held in place, and so may be followed."""
    path = real(os.path.join(folder, "config"))
    text = read(path, _CONFIG_MOST + 1)
    if len(text) > _CONFIG_MOST:
        raise SandboxUnavailable(
            f"sandbox: {path} has more than {_CONFIG_MOST} bytes: too many to look through.",
            remedy="Make it shorter, or remove it if it is not yours.",
        )
    return text


def read(path: str, most: int) -> bytes:
    """The start of a regular file; nothing for anything else."""
    try:
        return git_pointers.read_start(path, most)
    except PermissionError as error:
        raise unseen(path) from error


def kind(path: str) -> str | None:
    """Whether there is a link, a folder or a file."""
    try:
        return git_pointers.kind(path)
    except PermissionError as error:
        raise unseen(path) from error


def _folders(parent: str) -> list[tuple[str, bool]]:
    """The folders and links in one, with whether it is a link."""
    try:
        with os.scandir(parent) as entries:
            return sorted(
                (entry.path, entry.is_symlink())
                for entry in entries
                if entry.is_symlink() or entry.is_dir(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno in (ELOOP, ENAMETOOLONG):
            return []  # nothing can be there
        raise unseen(parent) from error
