"""The diff of a turn in git's layout, over any number of patches.

The first time a path is touched its content is remembered; the diff compares that with the disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import sha1
from types import MappingProxyType
from typing import NamedTuple

from toolrest.patch.files.file_system import FileSystem
from toolrest.patch.files.os_files import FileTooLarge
from toolrest.patch.plan import Plan
from toolrest.patch.text.diff import unified_diff

_NOTHING = "0" * 40
_UNKNOWN: Mapping[str, bytes] = MappingProxyType({})


class _File(NamedTuple):
    data: bytes
    mode: str

    @property
    def name(self) -> str:
        """Git's object name of this content."""
        head = b"blob %d\0" % len(self.data)
        return sha1(head + self.data, usedforsecurity=False).hexdigest()


class TurnDiffTracker:
    """Collects the changes of a turn. Paths are shown relative to `root`."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._before: dict[str, _File | None] = {}
        self._came_from: dict[str, str] = {}

    def watch(self, plan: Plan, files: FileSystem) -> None:
        """Remember the files that a plan will change. To be called before it is applied."""
        for change in plan.changes:
            if change.path not in self._before:
                self._before[change.path] = _look(files, change.path, plan.sources)
        for record in plan.records:
            if record.move_path is not None:
                old, new = record.path.rstrip("/"), record.move_path.rstrip("/")
                self._came_from[new] = self._came_from.pop(old, old)

    def text(self, files: FileSystem) -> str:
        """The diff from the remembered contents to the disk now; empty when nothing differs."""
        now = {path: _look(files, path) for path in self._before}
        renamed = {
            new: old
            for new, old in self._came_from.items()
            if new != old and new in now and now[new] and self._before[new] is None
            if self._before.get(old) and now[old] is None
        }
        gone = set(renamed.values())
        sections = []
        for path in sorted(set(now) - gone):
            old = renamed.get(path, path)
            names = self._shown(old), self._shown(path)
            sections.append(_section(*names, self._before[old], now[path]))
        return "".join(sections)

    def _shown(self, path: str) -> str:
        inside = path.startswith(f"{self.root.rstrip('/')}/")
        return os.path.relpath(path, self.root) if inside else path.lstrip("/")


def _look(files: FileSystem, path: str, known: Mapping[str, bytes] = _UNKNOWN) -> _File | None:
    try:
        status = files.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return _File(os.fsencode(files.readlink(path)), "120000")
        mode = "100755" if status.st_mode & stat.S_IXUSR else "100644"
    except OSError:
        return None
    try:
        return _File(known[path] if path in known else files.read(path), mode)
    except FileTooLarge:
        return _File(b"", mode)  # that it goes is shown, its text is not
    except OSError:
        return None


def _section(old: str, new: str, before: _File | None, after: _File | None) -> str:
    """The diff of one file; empty for a pure rename."""
    if before == after:
        return ""
    a, b = _quoted(f"a/{old}"), _quoted(f"b/{new}")
    lines = [f"diff --git {a} {b}", *_modes(before, after)]
    if old != new:
        lines += [f"rename from {_quoted(old)}", f"rename to {_quoted(new)}"]
    names = [_NOTHING if file is None else file.name for file in (before, after)]
    if names[0] != names[1]:
        lines.append(f"index {names[0]}..{names[1]}")
    return "\n".join(lines) + "\n" + _body(a, b, before, after)


def _modes(before: _File | None, after: _File | None) -> list[str]:
    if before is None:
        return [] if after is None else [f"new file mode {after.mode}"]
    if after is None:
        return [f"deleted file mode {before.mode}"]
    if before.mode != after.mode:
        return [f"old mode {before.mode}", f"new mode {after.mode}"]
    return []


def _body(a: str, b: str, before: _File | None, after: _File | None) -> str:
    old, new = b"" if before is None else before.data, b"" if after is None else after.data
    if old == new:
        return ""
    a = "/dev/null" if before is None else a
    b = "/dev/null" if after is None else b
    try:
        hunks = unified_diff(old.decode(), new.decode(), 3, universal=False)
    except UnicodeDecodeError:
        return f"Binary files {a} and {b} differ\n"
    if b"\0" in old or b"\0" in new:
        return f"Binary files {a} and {b} differ\n"
    return f"--- {a}\n+++ {b}\n{hunks}"


def _quoted(name: str) -> str:
    """A name as git writes it: with quotes when it holds something that would break a line."""
    if not any(c in '"\\' or c < " " or c == "\x7f" for c in name):
        return name
    escaped = "".join(
        f"\\{c}" if c in '"\\' else f"\\{ord(c):03o}" if c < " " or c == "\x7f" else c for c in name
    )
    return f'"{escaped}"'
