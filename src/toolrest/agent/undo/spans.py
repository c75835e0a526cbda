"""The times of a turn's calls: what was written in between is not the turn's own.

A turn takes minutes, and most of them the model thinks, while a person goes on editing. The times
of a file tell these edits from the turn's own, where nothing of the turn can have been at work
outside its calls; else no edits are told apart, and every change counts as the turn's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from toolrest.agent.undo.records import Changes, FileRecord
from toolrest.policy.paths.kernel_files import DeviceTable

_TICK = 20_000_000
"""Time stamps of files lag behind the clock by up to so many nanoseconds."""
_STEPPED = 100_000_000
_LOCAL = frozenset(
    ("bcachefs", "btrfs", "fuse.fuse-overlayfs", "overlay", "ramfs", "tmpfs", "ubifs", "zfs")
)  # fmt: skip
"""File systems without a disk of their own in the kernel's eyes that go by this machine's clock."""


class Spans(Struct):
    """The times at which calls of one turn were under way that may change something."""

    began: int = field(default_factory=time.time_ns)
    steady: int = field(default_factory=time.monotonic_ns)
    unbounded: bool = False
    _closed: list[tuple[int, int]] = field(default_factory=list)
    _running: int = 0
    _since: int = 0

    def give_up(self) -> None:
        """Something of the turn may work outside its calls: a server, a program left alone."""
        self.unbounded = True

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Note that a call is under way."""
        if not self._running:
            self._since = time.time_ns()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._closed.append((self._since, time.time_ns()))

    def by_others(self, changes: Changes, folder: str) -> list[str]:
        """The paths that were last written while no call was under way; `folder` holds them."""
        if self.unbounded or self._running or self._clock_was_set() or not _is_local(folder):
            return []
        found = {path for path, (_, now) in changes.items() if now is not None and self._is(now)}
        above = {parent for path in found for parent in _above(path)}
        made = {path for path in above if path in changes and changes[path][0] is None}
        return sorted(found | made)

    def _is(self, now: FileRecord) -> bool:
        # A program that only sets an attribute changes `ctime`; one that moves a file leaves both
        # its times as they were, or `mtime`.
        return not now.is_dir and self._is_between(now.mtime) and self._is_between(now.ctime)

    def _is_between(self, moment: int) -> bool:
        if moment <= self.began:
            return False
        return not any(start - _TICK <= moment <= end + _TICK for start, end in self._closed)

    def _clock_was_set(self) -> bool:
        passed = time.time_ns() - self.began
        return abs(passed - (time.monotonic_ns() - self.steady)) > _STEPPED


def _above(path: str) -> Iterator[str]:
    while "/" in path.rstrip("/"):
        path = path.rpartition("/")[0]
        yield path


def _is_local(folder: str) -> bool:
    """Whether the times of its files are this machine's, and not those of a server."""
    try:
        device = os.stat(folder).st_dev
    except OSError:
        return False
    return bool(os.major(device)) or DeviceTable().kind(device) in _LOCAL
