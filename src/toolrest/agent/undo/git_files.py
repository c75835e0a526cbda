"""Does a .gitignore cover this path? It only decides how large a file may be to be kept."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_LONGEST = 1 << 20
_MOST_PATTERNS = 5_000


class Pattern(NamedTuple):
    """One line: its parts between slashes as expressions, `None` standing for `**`."""

    parts: tuple[re.Pattern[str] | None, ...]
    anchored: bool
    folders_only: bool
    keeps: bool

    def matches(self, names: Sequence[str], is_dir: bool) -> bool:
        """Whether a path below the file's folder, given by its names, is meant."""
        if self.folders_only and not is_dir:
            return False
        if not self.anchored:
            part = self.parts[0]
            return part is None or part.match(names[-1]) is not None
        return _fits(self.parts, names)


class Frame(NamedTuple):
    """The patterns of one file and how many names lead to its folder."""

    depth: int
    patterns: tuple[Pattern, ...]


class Rules:
    """The .gitignore files from the repository's top down to one folder."""

    __slots__ = ("_frames", "_shift")

    def __init__(self, frames: tuple[Frame, ...] = (), shift: tuple[str, ...] = ()) -> None:
        self._frames = frames
        self._shift = shift

    @classmethod
    def above(cls, workspace: str) -> tuple[Rules, str | None]:
        """What the repository around the workspace says, from its top down to the parent.

        And where that top is; None when there is no repository.
        """
        found = (at for at, entry in _way_up(workspace) if _is_there(entry))
        folder = next(found, None)
        if folder is None:
            return cls(), None
        names = _names(workspace[len(folder) :].lstrip("/"))
        rules = cls((), tuple(names))
        frames = [Frame(0, read_patterns(os.path.join(folder, ".git", "info", "exclude")))]
        for depth in range(len(names)):
            place = os.path.join(folder, *names[:depth], ".gitignore")
            frames.append(Frame(depth, read_patterns(place)))
        rules._frames = tuple(frame for frame in frames if frame.patterns)
        return rules, folder

    def entered(self, folder: str, patterns: tuple[Pattern, ...]) -> Rules:
        """These rules with the .gitignore of a folder of the workspace added."""
        if not patterns:
            return self
        depth = len(self._shift) + len(_names(folder))
        return Rules((*self._frames, Frame(depth, patterns)), self._shift)

    def ignores(self, path: str, *, is_dir: bool = False) -> bool:
        """Whether the last pattern that matches, the nearest file first, ignores this path."""
        if not self._frames:
            return False
        names = [*self._shift, *_names(path)]
        for frame in reversed(self._frames):
            below = names[frame.depth :]
            for pattern in reversed(frame.patterns):
                if pattern.matches(below, is_dir):
                    return not pattern.keeps
        return False


@lru_cache(maxsize=8)
def _way_up(folder: str) -> tuple[tuple[str, str], ...]:
    """A folder and all above it, nearest first, each with where its `.git` would be."""
    found = [(folder, os.path.join(folder, ".git"))]
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        found.append((folder, os.path.join(folder, ".git")))
    return tuple(found)


def _is_there(path: str) -> bool:
    return os.access(path, os.F_OK, follow_symlinks=False)


def _names(path: str) -> list[str]:
    return path.split("/") if path else []


def read_patterns(path: str | int) -> tuple[Pattern, ...]:
    """The patterns of a .gitignore file; none when it cannot be read."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = path if isinstance(path, int) else os.open(path, flags)
        with open(descriptor, "rb") as file:
            text = file.read(_LONGEST).decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    lines = text.splitlines()[:_MOST_PATTERNS]
    return tuple(found for line in lines if (found := parse_line(line)) is not None)


@lru_cache(maxsize=4096)
def parse_line(line: str) -> Pattern | None:
    """A line of a .gitignore file; None for blank lines and comments."""
    line = _trimmed(line)
    if not line or line.startswith("#"):
        return None
    keeps = line.startswith("!")
    line = line[1:] if keeps else line
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    if not line:
        return None
    anchored = "/" in line
    parts = tuple(None if part == "**" else _expression(part) for part in line.split("/") if part)
    return Pattern(parts, anchored, folders_only, keeps)


def _trimmed(line: str) -> str:
    bare = line.rstrip(" ")
    escaped = bare.endswith("\\") and len(bare) < len(line)
    return bare + " " if escaped else bare


def _expression(part: str) -> re.Pattern[str]:
    # fnmatch's translation cannot be made to run away; it only lacks the backslash.
    plain = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)
    with contextlib.suppress(re.error):
        return re.compile(fnmatch.translate(plain))
    return re.compile(re.escape(part) + r"\Z")


def _fits(parts: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    """Match names against parts; `**` takes any number of them, at the end at least one."""
    at = name = 0
    resume = (-1, 0)
    while name < len(names):
        left = at < len(parts)
        part = parts[at] if left else None
        if left and part is None:
            if at == len(parts) - 1:
                return True
            resume = (at, name)
            at += 1
        elif part is not None and part.match(names[name]):
            at, name = at + 1, name + 1
        elif resume[0] >= 0:
            resume = (resume[0], resume[1] + 1)
            at, name = resume[0] + 1, resume[1]
        else:
            return False
    return at == len(parts)
