"""The names that are watched: what a kind of sandbox does not hold, and nested git folders in any.

Nested repositories are those that the turn's scan came by; nothing is searched for a command.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator

from toolrest.own_code import own_places
from toolrest.policy.paths.names import inside
from toolrest.policy.paths.protected import git_folder_parts
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.git_files import Nested
from toolrest.sandbox.policy import SandboxPolicy

PARTS = ("hooks", "config", "config.worktree", "info/attributes", "commondir")
"""What makes git run programs, in any of its folders."""
_MOST = 256
"""So many nested repositories are watched, and git folders inside each."""


def watched_names(
    policy: SandboxPolicy, repositories: Iterable[str], *, weak: bool
) -> tuple[set[str], set[str], set[str]]:
    """Names to record with all below them, and git folders of which only the identity counts.

    And repositories that are too many.

    `repositories` are folders that hold a `.git`. The roots' own are held by every kind that is
    not weak.
    """
    names: set[str] = set()
    pinned: set[str] = set()
    own = tuple(own_places())
    if weak:
        names.update(path for path in policy.protected if not any(inside(path, p) for p in own))
    found = [os.path.normpath(folder) for folder in repositories]
    nested = [one for one in found if one not in policy.roots and policy.in_root(one) is not None]
    nested.sort(key=_since)
    for folder in (*(policy.roots if weak else ()), *nested[:_MOST]):
        if policy.in_root(folder) is not None:
            _add(folder, policy, names, pinned)
    return names, pinned, set(nested[_MOST:])


def _since(folder: str) -> tuple[int, str]:
    """The oldest first: no command makes others that come before those that are there."""
    entry = os.path.join(folder, ".git")
    made = 0
    with contextlib.suppress(OSError):
        info = os.lstat(entry)
        made = info.st_ctime_ns
        if stat.S_ISDIR(info.st_mode):  # its own time changes with every commit
            made = os.lstat(os.path.join(entry, "config")).st_ctime_ns
    return made, folder


def _add(folder: str, policy: SandboxPolicy, names: set[str], pinned: set[str]) -> None:
    entry = os.path.join(folder, ".git")
    if os.path.isfile(entry) or os.path.islink(entry):
        names.add(entry)
        names.update(path for path in git_folder_parts(folder) if policy.in_root(path))
        return
    for git in (entry, *_inner(entry)):
        pinned.add(git)
        names.update(os.path.join(git, part) for part in PARTS)


def _inner(entry: str) -> Iterator[str]:
    """Git folders of submodules and worktrees, which lie in their repository's."""
    nested = Nested()
    try:
        nested.search_all(entry)
    except SandboxUnavailable:
        return  # a command has closed it
    yield from (*nested.modules, *nested.worktrees)[:_MOST]
