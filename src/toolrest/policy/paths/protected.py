"""Protected paths, which no file tool may write inside a writable root, existing or not.

These files make other programs, or Toolrest itself, run code or drop a guard later: git hooks and
config, agents' and editors' settings, shell start-up files, and Toolrest's own code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from toolrest.own_code import own_places
from toolrest.policy.paths.hidden import Unhidden
from toolrest.policy.paths.links import Links
from toolrest.policy.paths.names import both_forms, fold, inside, prefixes, unique

NAMES: tuple[str, ...] = (".toolrest", ".codex", ".agents", ".mcp.json", ".vscode", ".envrc")
"""Protected at any depth of a root. `.git` has a rule of its own."""

GIT_PARTS: tuple[str, ...] = ("hooks", "config", "config.worktree", "info", "commondir", "gitdir")
"""Parts of any git folder from which git runs programs, or finds its other folders."""

HOME_FILES: tuple[str, ...] = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".config/fish",
    ".config/autostart",
    ".config/systemd",
    ".config/git",
    ".gitconfig",
    ".pam_environment",
    ".inputrc",
    ".xprofile",
    ".xinitrc",
    ".pythonstartup",
    ".pythonrc",
    "Library/LaunchAgents",
)
"""Start-up files, for when a root is or holds the user's home."""

READ_ONLY_GIT: tuple[str, ...] = (".git/hooks", ".git/config", ".git/info/attributes")
"""What of `.git` the sandbox keeps read-only: programs may commit, file tools may not."""

UNDOTTED = frozenset((*GIT_PARTS, "modules", "worktrees", "Library"))
"""First names of protected places that do not begin with a dot."""

_LONGEST = 255
_NAMES = frozenset(NAMES)
_GIT_PARTS = frozenset(GIT_PARTS)


def protected_part(relative: str, *, command: bool = False) -> str | None:
    """The protected name that a path relative to its root runs through, or None.

    At the top of a root all of `.git` is protected, but from commands only as in nested
    repositories: the parts that make git run something, and the `.git` entry itself.
    """
    names = fold(relative).split("/")
    for index, name in enumerate(names):
        if name in _NAMES:
            return name
        if name == ".git":
            if index == 0 and not command:
                return ".git"
            part = names[index + 1] if index + 1 < len(names) else ""
            if part in _GIT_PARTS or not (part or command):
                return f".git/{part}".rstrip("/")
    return None


class ProtectedPlaces:
    """The absolute places: start-up files, Toolrest's code, git folders kept elsewhere."""

    def __init__(
        self,
        *,
        roots: Sequence[str],
        homes: Sequence[str],
        extra: Sequence[str] = (),
        reach: Sequence[str] | None = None,
        unhidden: Unhidden | None = None,
    ) -> None:
        self._unhidden = unhidden or Unhidden()
        places = [
            *(form for path in extra for form in both_forms(path)),
            *(form for home in homes for name in HOME_FILES for form in _in_home(home, name)),
            *(part for root in roots for part in git_folder_parts(root)),
            *own_places(),
        ]
        self.places = tuple(
            place
            for place in unique(places)
            if any(inside(place, root) for root in reach or roots) and not self.is_unhidden(place)
        )
        self.places = unique((*self.places, *self._behind_links(roots)))
        self._prefixes = prefixes(fold(place) for place in self.places)

    def _behind_links(self, roots: Sequence[str]) -> Iterator[str]:
        """Links on the way to these places, and where they end: what is there is what counts.

        An end that cannot be kept as it is, since its folder is missing too, is none: with such a
        link no command runs.
        """
        within = prefixes(roots)
        parts = (f".git/{part}" for part in (*GIT_PARTS, "modules", "worktrees"))
        names = [os.path.join(root, part) for part in parts for root in roots]
        names += [name for root in roots for name in self.within(root)]
        links = Links.towards(names, lambda path: (path + "/").startswith(within))
        yield from links.held
        for end in links.ends:
            kept = os.path.lexists(os.path.dirname(end)) and len(os.path.basename(end)) <= _LONGEST
            if kept and not any(inside(root, end) for root in roots):
                yield end

    def is_unhidden(self, path: str) -> bool:
        """Whether the user's `paths.unhide` takes the protection away; never from our own code."""
        return self._unhidden.covers(fold(path)) and not any(
            inside(path, own) for own in own_places()
        )

    def covers(self, path: str) -> bool:
        """Whether a real path is one of these places or beneath one."""
        return (fold(path) + "/").startswith(self._prefixes)

    def within(self, root: str) -> list[str]:
        """What the sandbox keeps read-only in `root`, existing or not."""
        named = (os.path.join(root, name) for name in (*READ_ONLY_GIT, *NAMES))
        named = (name for name in named if not self.is_unhidden(name))
        return [*named, *(place for place in self.places if inside(place, root))]


def _in_home(home: str, name: str) -> tuple[str, ...]:
    return both_forms(os.path.join(home, name))


def git_folder_parts(root: str) -> Iterator[str]:
    """For a root whose `.git` is a file (worktree, submodule): what counts in the real folder."""
    folder = _pointed_at(os.path.join(root, ".git"), "gitdir:")
    if folder is None:
        return
    common = _pointed_at(os.path.join(folder, "commondir"), "")
    for place in unique([folder, *([common] if common else [])]):
        for part in GIT_PARTS:
            yield os.path.join(place, part)


def _pointed_at(file: str, label: str) -> str | None:
    """The folder that a one-line pointer file of git names."""
    if not os.path.isfile(file):
        return None
    try:
        with open(file, "rb") as stream:
            text = os.fsdecode(stream.read(4096))
    except OSError:
        return None
    if not text.startswith(label) or "\0" in text:
        return None
    target = text.removeprefix(label).strip()
    return os.path.realpath(os.path.join(os.path.dirname(file), target)) if target else None
