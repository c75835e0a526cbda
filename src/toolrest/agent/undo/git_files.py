"""Does a .gitignore cover this path? It only decides how large a file may be to be kept.

Which files does git track? Read from its index; no program of the repository's choice runs.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from toolrest.private_files import project_has

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


class IgnoreRules:
    """The .gitignore files from the repository's top down to one folder."""

    __slots__ = ("_frames", "_shift")

    def __init__(self, frames: tuple[Frame, ...] = (), shift: tuple[str, ...] = ()) -> None:
        self._frames = frames
        self._shift = shift

    @classmethod
    def above(cls, workspace: str) -> tuple[IgnoreRules, str | None]:
        """What the repository around the workspace says, from its top down to the parent.

        And where that top is; None when there is no repository.
        """
        found = (at for at, entry in _way_up(workspace) if project_has(entry))
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

    def entered(self, folder: str, patterns: tuple[Pattern, ...]) -> IgnoreRules:
        """These rules with the .gitignore of a folder of the workspace added."""
        if not patterns:
            return self
        depth = len(self._shift) + len(_names(folder))
        return IgnoreRules((*self._frames, Frame(depth, patterns)), self._shift)

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


_LARGEST = 512 << 20
_POINTER = b"gitdir: "


def tracked_in(top: str) -> frozenset[str]:
    """Paths that the index of the repository at `top` names, relative to it."""
    try:
        data = _read(os.path.join(_git_folder(top), "index"))
    except OSError:
        return frozenset()
    for hash_size in (20, 32):
        try:
            return frozenset(_paths(data, hash_size))
        except (struct.error, ValueError, IndexError):
            continue
    return frozenset()


def _git_folder(top: str) -> str:
    """`.git`, or what the file of that name points to (worktrees, submodules)."""
    place = os.path.join(top, ".git")
    if not stat.S_ISREG(os.lstat(place).st_mode):
        return place
    with open(place, "rb") as file:
        line = file.read(4096).split(b"\n", 1)[0]
    if not line.startswith(_POINTER):
        return place
    return os.path.join(top, os.fsdecode(line[len(_POINTER) :].strip()))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise OSError("not an index")
        return file.read(_LARGEST)


def _paths(data: bytes, hash_size: int) -> Iterator[str]:
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index that is known")
    at, name = 12, b""
    for _ in range(count):
        start = at
        at += 40 + hash_size
        (flags,) = struct.unpack_from(">H", data, at)
        at += 4 if flags & 0x4000 else 2
        if version == 4:
            drop, at = _varint(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - drop] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + ((end - start) // 8 + 1) * 8
        if len(name) < 0x0FFF and (flags & 0x0FFF) != len(name):
            raise ValueError("an entry's length is wrong")
        yield os.fsdecode(name)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at
