"""Trust in folders: whether their files may configure Toolrest."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolrest.config.files import config_file, read_toml, real_path, toolrest_home
from toolrest.config.layer_check import LayerSource, check_layer
from toolrest.errors import ConfigError
from toolrest.git_pointers import linked_worktree
from toolrest.private_files import project_has

if TYPE_CHECKING:
    from toolrest.config.schema.types import TrustLevel


def git_root(folder: str) -> str | None:
    """The nearest folder, upwards, that has a `.git`; what a `.git` file points to is ignored.

    A folder could otherwise claim, by a file of its own, to belong to a repository that is
    trusted.
    """
    for candidate in _upwards(folder):
        if project_has(os.path.join(candidate, ".git")):
            return candidate
    return None


def _upwards(folder: str) -> Iterator[str]:
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _main_root(root: str) -> str | None:
    """The root of the repository that a linked worktree belongs to, if that one says so, too."""
    try:
        worktree = linked_worktree(os.path.join(root, ".git"))
    except OSError:
        return None
    if worktree is None or os.path.basename(worktree.common.real) != ".git":
        return None
    return os.path.dirname(worktree.common.real)


def nearest_level(folder: str, projects: Mapping[str, TrustLevel]) -> TrustLevel | None:
    """The entry of a canonical folder, or the nearest above it up to its git root.

    Without any, that of the repository of which it is a linked worktree. Entries are compared as
    written: resolving a symlink here would hand the trust in what it pointed to yesterday to what
    it points to today.
    """
    if not projects:
        return None
    root = git_root(folder) or folder
    entry = nearest_entry(folder, root, projects)
    if entry is None and (main := _main_root(root)) is not None:
        entry = main
    return projects.get(entry) if entry is not None else None


def nearest_entry(folder: str, root: str, projects: Container[str]) -> str | None:
    """The folder with an entry, from a folder upwards to this root."""
    for candidate in _upwards(folder):
        if candidate in projects:
            return candidate
        if candidate == root:
            return None
    return None


def trust_of(path: str | os.PathLike[str], *, home: str | None = None) -> TrustLevel | None:
    """The trust level of a folder in the user's file; None when it is not set."""
    return nearest_level(real_path(path), stored_levels(_home(home)))


def trust(path: str | os.PathLike[str], *, home: str | None = None) -> str:
    """Mark a folder as trusted; returns the canonical path that was stored."""
    return _store(_canonical(path), "trusted", _home(home))


def distrust(path: str | os.PathLike[str], *, home: str | None = None) -> str:
    """Mark a folder as untrusted, so that the user is not asked again; returns the stored path."""
    return _store(_canonical(path), "untrusted", _home(home))


def revoke(path: str | os.PathLike[str], *, home: str | None = None) -> str:
    """Revoke trust, also that of a folder above; returns the path."""
    from toolrest.config.write import edit_user_file

    folder, where = real_path(path), _home(home)
    stored = stored_levels(where)
    if folder in stored:
        edit_user_file(where, ("projects", folder), None)
        del stored[folder]
    if nearest_level(folder, stored) == "trusted":
        _store(folder, "untrusted", where)
    return folder


def _canonical(path: str | os.PathLike[str]) -> str:
    folder = real_path(path)
    if not os.path.isdir(folder):
        raise ConfigError(f"{folder} is not a folder, so it cannot be trusted")
    return folder


def _store(folder: str, level: TrustLevel, home: str) -> str:
    from toolrest.config.write import edit_user_file

    edit_user_file(home, ("projects", folder, "trust_level"), level)
    return folder


def _home(home: str | None) -> str:
    return toolrest_home(home, os.environ)


def stored_levels(home: str) -> dict[str, Any]:
    """The levels in the user's file, by folder."""
    file = config_file(home)
    raw = read_toml(file)
    if raw is None:
        return {}
    values = check_layer({"projects": raw.get("projects", {})}, LayerSource("user", file)).values
    return {key[1]: level for key, level in values.items()}
