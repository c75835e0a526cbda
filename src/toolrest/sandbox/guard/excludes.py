"""Git excludes for the sandbox: a longer `info/exclude` keeps git from listing placeholders.

A placeholder for a file is an empty file there, which `git status` would list. So the sandbox shows
the repository's `info/exclude` with those names added. Not `core.excludesFile` in a variable: that
replaces the user's own file, and would hide files of the same name in every other repository.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from toolrest.private_files import is_placeholder, private_file, private_folder, write_all
from toolrest.sandbox.guard.placeholders import UNLISTED
from toolrest.sandbox.guard.root import Root

_LARGEST = 1 << 20

Stamp = tuple[int, int, int] | None


class GitExcludes:
    """The copies of one session, in its private folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._written: dict[str, bytes] = {}

    def stamps(self, roots: Iterable[Root]) -> tuple[object, ...]:
        """What the copies depend on, besides the placeholders."""
        folders = [root.git_info[0] for root in roots]
        return tuple((_names(at), _stamp(os.path.join(at, "exclude"))) for at in folders)

    def shown(self, roots: Iterable[Root]) -> dict[str, str]:
        """The paths at which a copy is shown, and the copies."""
        names: dict[str, list[str]] = {}
        for root in roots:
            info, below = root.git_info
            files = [name for name in UNLISTED if is_placeholder(os.path.join(root.path, name))]
            if files:
                names.setdefault(info, []).extend(f"/{below}{name}" for name in files)
        shown: dict[str, str] = {}
        for number, (info, lines) in enumerate(names.items()):
            found = _names(info)
            if found is None:
                continue
            if found <= {"exclude"}:  # in place of the folder, which has a mount anyway
                shown[info] = self._copy(number, info, lines)
            elif "exclude" in found:
                shown[f"{info}/exclude"] = self._copy(number, info, lines) + "/exclude"
        return shown

    def _copy(self, number: int, info: str, names: list[str]) -> str:
        folder = f"git-info-{number}"
        text = "".join(f"{_escaped(name)}\n" for name in names).encode("utf-8", "surrogateescape")
        self._write(folder, (_read(os.path.join(info, "exclude")) or b"") + b"\n" + text)
        return os.path.join(self._folder, folder)

    def _write(self, name: str, content: bytes) -> None:
        if self._written.get(name) == content:
            return
        folder = private_folder(self._folder, name)
        try:
            with suppress(FileNotFoundError):
                os.unlink("exclude", dir_fd=folder)  # a command that runs keeps the one it has
            file = private_file(folder, "exclude")
            write_all(file, content)
            os.close(file)
        finally:
            os.close(folder)
        self._written[name] = content


def _escaped(name: str) -> str:
    """A path as a pattern that matches only it."""
    return "".join(f"\\{letter}" if letter in "\\*?[ " else letter for letter in name)


def _read(path: str) -> bytes | None:
    """A regular file's content; none behind a link, which may lead to what commands may not see."""
    if os.path.realpath(path) != path:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read(_LARGEST) if stat.S_ISREG(os.fstat(fd).st_mode) else None


def _names(folder: str) -> frozenset[str] | None:
    """What is in a folder; None where there is none, or a link on the way to it."""
    if os.path.realpath(folder) != folder:
        return None
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return None


def _stamp(path: str) -> Stamp:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size
