"""The names that are watched: what a kind of sandbox does not hold, and nested git folders in any.

Nested repositories are those that the turn's scan came by; nothing is searched for a command.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from toolrest.own_code import own_places
from toolrest.policy.paths.names import inside
from toolrest.policy.paths.protected import git_folder_parts
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.git_files import Nested
from toolrest.sandbox.policy import SandboxPolicy

PARTS = ("hooks", "config", "config.worktree", "info/attributes", "commondir")
"""What makes git run programs, in any of its folders."""
_MOST = 64
"""So many nested repositories are watched."""


def watched_names(
    policy: SandboxPolicy, repositories: Iterable[str], *, weak: bool
) -> tuple[set[str], set[str]]:
    """Names to record with all below them, and git folders of which only the identity counts.

    `repositories` are folders that hold a `.git`. The roots' own are held by every kind that is
    not weak.
    """
    names: set[str] = set()
    pinned: set[str] = set()
    own = tuple(own_places())
    if weak:
        names.update(path for path in policy.protected if not any(inside(path, p) for p in own))
    found = [os.path.normpath(folder) for folder in repositories]
    nested = sorted(folder for folder in found if folder not in policy.roots)[:_MOST]
    for folder in (*(policy.roots if weak else ()), *nested):
        if policy.in_root(folder) is not None:
            _add(folder, policy, names, pinned)
    return names, pinned


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
