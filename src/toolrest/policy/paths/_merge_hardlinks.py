"""Is this file a second name of a hidden one? Only asked about files with several links."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator

from toolrest.policy.paths.hidden import HiddenList

PER_PLACE = 500
MOST_SEARCHED = 20_000
_FRESH_SECONDS = 2.0


class HiddenFiles:
    """Identities of the hidden files that have several links, collected again when stale.

    Bounded: up to `PER_PLACE` files of each hidden folder, and `.env*` among the first
    `MOST_SEARCHED` entries of the roots. A link beyond that is not noticed.
    """

    def __init__(self, hidden: HiddenList) -> None:
        self._hidden = hidden
        self._known: frozenset[tuple[int, int]] = frozenset()
        self._until = 0.0

    def holds(self, status: os.stat_result) -> bool:
        """Whether this object is a hidden file under another name."""
        now = time.monotonic()
        if now >= self._until:
            self._known = frozenset(self._collect())
            spent = time.monotonic() - now
            # A large tree is searched less often: at most about 2 % of the time.
            self._until = time.monotonic() + max(_FRESH_SECONDS, 50 * spent)
        return (status.st_dev, status.st_ino) in self._known

    def _collect(self) -> Iterator[tuple[int, int]]:
        for place in (*self._hidden.fixed, *self._hidden.found(MOST_SEARCHED)):
            for path, status in _files(place, PER_PLACE):
                if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) and self._hidden.hit(path):
                    yield status.st_dev, status.st_ino


def _files(place: str, limit: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        status = os.stat(place)
    except (OSError, ValueError):
        return
    if not stat.S_ISDIR(status.st_mode):
        yield place, status
        return
    pending = [place]
    while pending and limit > 0:
        try:
            entries = os.scandir(pending.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                limit -= 1
                if limit < 0:
                    return
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                try:
                    yield entry.path, entry.stat()
                except OSError:
                    continue
