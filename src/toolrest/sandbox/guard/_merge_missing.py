"""Which placeholder stands for a protected name that does not exist?

A folder, for a name in a project: git does not list empty folders, so nobody commits one. A file
for a shell's start-up file, written so that a shell which starts meanwhile outside behaves as if
the file were not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

_SH = b"[ -r ~/.profile ] && . ~/.profile\n"
_FILES: dict[str, bytes] = {
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
    parent = os.path.dirname(path)
    while len(parent) > len(root) and not os.path.lexists(parent):
        path, parent = parent, os.path.dirname(parent)
    return path
