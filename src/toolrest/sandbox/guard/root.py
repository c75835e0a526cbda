"""Protected names of one writable root, and the placeholders for those that do not exist.

A placeholder is a folder or a file as the name is. A shell's start-up file has a content: a shell
that starts meanwhile outside behaves as if the file were not there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from toolrest.policy.paths.names import inside
from toolrest.private_files import project_has
from toolrest.sandbox.errors import SandboxUnavailable, unseen
from toolrest.sandbox.guard.git_dirs import GitPlan, git_plan, info_above, only

_SH = b"[ -r ~/.profile ] && . ~/.profile\n"
_FILES: dict[str, bytes] = {
    ".mcp.json": b"",
    ".envrc": b"",
    ".bash_login": _SH,
    ".bash_logout": b"",
    ".bash_profile": b"if [ -r ~/.bash_login ]; then . ~/.bash_login\nelse " + _SH + b"fi\n",
    ".bashrc": b"",
    "commondir": b".\n",
    "config.worktree": b"",
    ".gitconfig": b"",
    ".inputrc": b"$include /etc/inputrc\n",
    ".pam_environment": b"",
    ".profile": b"",
    ".pythonrc": b"",
    ".pythonstartup": b"",
    ".xprofile": b"",
    ".zlogin": b"",
    ".zlogout": b"",
    ".zprofile": b"",
    ".zshenv": b"",
    ".zshrc": b"",
}


def at_top(paths: Iterable[str], root: str) -> tuple[dict[str, bytes | None], tuple[str, ...]]:
    """The names right in the root, with what stands for each, and the ones deeper down.

    For the first nothing need be looked at: either the name is there, or it alone is missing.
    """
    top: dict[str, bytes | None] = {}
    deeper: list[str] = []
    for path in paths:
        if os.path.dirname(path) == root:
            top[path] = _FILES.get(os.path.basename(path))
        else:
            deeper.append(path)
    return top, tuple(deeper)


def at_depth(
    paths: Iterable[str], root: str
) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
    """What to make inside the root so that each of these names is taken, and the names that are.

    Where a parent is missing too, the outermost missing one is enough. A name that is taken has
    its stand-in too: it may be gone in a moment, having been another session's.
    """
    missing: dict[str, bytes | None] = {}
    there: dict[str, bytes | None] = {}
    for path in paths:
        content = _FILES.get(os.path.basename(path))
        if os.path.lexists(path):
            there[path] = content
            continue
        taken = _outermost_missing(path, root)
        missing[taken] = content if taken == path else None
    return missing, there


def _outermost_missing(path: str, root: str) -> str:
    """Nothing is made in another session's placeholder, which would no longer be known as one."""
    parent = os.path.dirname(path)
    while len(parent) > len(root) and not project_has(parent):
        path, parent = parent, os.path.dirname(parent)
    return path


_Identity = tuple[int, int, int]


class WantedNames(NamedTuple):
    """Names in one folder that must not be free, with what stands for each."""

    missing: dict[str, bytes | None]
    there: dict[str, bytes | None]
    """As far as known; where one is gone after all, its stand-in comes."""


class Root:
    """One writable root: its git folders and the placeholders for what is missing."""

    def __init__(self, path: str, names: tuple[str, ...]) -> None:
        self.path = path
        self._names = names
        self._identity = _identity(path)
        self._protect(git_plan(path))

    def is_stale(self) -> bool:
        """Whether `.git` has changed since it was planned."""
        changed = _identity(self.path) != self._identity
        return changed or self._stamps != tuple(map(_stamp, self.git.watched))

    def look(self, *, again: bool = False) -> None:
        """Plan again if `.git` was replaced from outside since the last command, or has changed."""
        identity = _identity(self.path)
        if again or identity != self._identity:
            pointer = identity is not None and not stat.S_ISDIR(identity[1])
            entry = os.path.join(self.path, ".git")
            self._identity = identity
            self._protect(only(entry) if pointer else git_plan(self.path))
        elif self._stamps != tuple(map(_stamp, self.git.watched)):
            self._protect(git_plan(self.path))
        if self.git.refusal is not None:
            raise SandboxUnavailable(f"sandbox: {self.git.refusal}")

    def _protect(self, git: GitPlan) -> None:
        """Keep the protected names as they are, there or not; git's are in its plan."""
        self.git = git
        self._stamps = tuple(map(_stamp, git.watched))
        kept = (os.path.join(self.path, ".git"), *git.writable)
        self.protected = tuple(p for p in self._names if not any(inside(p, k) for k in kept))
        # The names right in the root and git's, with what stands for one that is missing.
        self.top, self.deeper = at_top(self.protected, self.path)
        self.top |= self.git.there
        self.missing = {**dict.fromkeys(self.git.missing_folders), **self.git.missing_files}
        self._known = _by_folder(self.missing, self.top)
        self.git_info = (git.info, "") if git.info else info_above(self.path)
        """Git's `info` folder for this root, and the root's path in the repository."""

    def wanted(self) -> dict[str, WantedNames]:
        """What to take before a command, by the folder that it is in."""
        if not self.deeper:
            return self._known
        missing, there = at_depth(self._real(), self.path)
        for wanted in self._known.values():
            missing |= wanted.missing
            there |= wanted.there
        return _by_folder(missing, there)

    def _real(self) -> list[str]:
        """The deeper names where they really are; links on the way are held in place."""
        folders = {path: os.path.realpath(path) for path in set(map(os.path.dirname, self.deeper))}
        real = (
            os.path.join(folders[os.path.dirname(path)], os.path.basename(path))
            for path in self.deeper
        )
        return [path for path in real if inside(path, self.path)]


def _identity(root: str) -> _Identity | None:
    """Identity of `.git`: inode and kind; of a gitfile also its time of change."""
    found = _stamp(os.path.join(root, ".git"))
    return (*found[:2], 0) if found is not None and stat.S_ISDIR(found[1]) else found


def _stamp(path: str) -> _Identity | None:
    try:
        info = os.lstat(path)
    except PermissionError as error:
        raise unseen(path) from error
    except OSError:
        return None
    return info.st_ino, stat.S_IFMT(info.st_mode), info.st_ctime_ns


def _by_folder(
    missing: dict[str, bytes | None], there: dict[str, bytes | None]
) -> dict[str, WantedNames]:
    found: dict[str, WantedNames] = {}
    for index, names in enumerate((missing, there)):
        for path, content in names.items():
            wanted = found.setdefault(os.path.dirname(path), WantedNames({}, {}))
            wanted[index][path] = content
    return found
