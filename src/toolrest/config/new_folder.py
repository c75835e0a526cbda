"""A folder that the user has not decided about: what an answer covers, what counts with it.

Some folders are too wide for an answer by a key: a home, `/`, and what holds a folder that the user
decided about on its own. `toolrest trust` takes them all the same.
"""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from toolrest.config.config import Config
from toolrest.config.files import user_home
from toolrest.config.trust import git_root, nearest_entry, stored_levels, trust_of
from toolrest.errors import ConfigError
from toolrest.private_files import project_has

BRINGS = (
    "AGENTS.md",
    os.path.join(".toolrest", "config.toml"),
    os.path.join(".toolrest", "rules"),
    ".mcp.json",
    os.path.join(".agents", "skills"),
)
"""What of a folder counts only once it is trusted."""


class NewFolder(NamedTuple):
    """A folder to ask about: a repository's root, or the workspace outside of one."""

    path: str
    brings: tuple[str, ...]
    """What it has of `BRINGS`, as paths."""
    refusal: str
    """Why an answer to a question cannot trust it; empty where one can."""

    @property
    def listed(self) -> str:
        """The names of what it brings."""
        return ", ".join(os.path.relpath(path, self.path) for path in self.brings)

    @property
    def way(self) -> str:
        """The command that trusts it all the same."""
        return shlex.join(["toolrest", "trust", self.path])


def new_folder(config: Config) -> NewFolder | None:
    """The folder to ask about; None where the user has decided."""
    workspace = config.workspace or os.getcwd()
    if trust_of(workspace, home=config.home) is not None:
        return None
    return _asked(workspace, git_root(workspace) or workspace, config)


def held_folder(config: Config) -> NewFolder | None:
    """The folder that keeps this session read-only by the user's own answer, if one does."""
    if not config.untrusted_folder or config.trust_level is None:
        return None
    workspace = config.workspace or os.getcwd()
    root = git_root(workspace) or workspace
    entry = nearest_entry(workspace, root, stored_levels(config.home))
    return _asked(workspace, entry or root, config)


def _asked(workspace: str, folder: str, config: Config) -> NewFolder:
    if workspace != folder and _is_wide(folder):
        folder = workspace  # a home that is a repository: of one's dotfiles, perhaps
    paths = (os.path.join(place, name) for place in (folder, workspace) for name in BRINGS)
    brings = tuple(path for path in dict.fromkeys(paths) if project_has(path))
    return NewFolder(folder, brings, _refusal(folder, stored_levels(config.home)))


def _refusal(folder: str, known: Iterable[str]) -> str:
    if folder == "/":
        return "it is the whole system"
    if folder in _homes(folder):
        return "it is a home folder"
    if _is_wide(folder):
        return "your home folder is in it"
    if project_has(os.path.join(folder, ".git")):
        return ""
    inside = next((path for path in sorted(known) if path.startswith(folder + os.sep)), None)
    return f"you decided about {inside} on its own" if inside else ""


def _is_wide(folder: str) -> bool:
    """Whether it is a home, or holds the user's."""
    prefix = os.path.join(folder, "")
    return any(home == folder or home.startswith(prefix) for home in _homes(folder))


def _homes(folder: str) -> set[str]:
    """The user's home folder, and that of the folder's owner."""
    found = set()
    with suppress(ConfigError):
        found.add(user_home(os.environ))
    for uid in (os.geteuid(), os.stat(folder).st_uid):
        with suppress(KeyError):  # a container's user may have no name
            found.add(pwd.getpwuid(uid).pw_dir)
    return {os.path.realpath(home) for home in found if os.path.isabs(home)}
