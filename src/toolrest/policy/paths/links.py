"""Links to protected and hidden files: symbolic links on the way to them, and hard links.

A protected name may be a link, or lie behind one. The target is protected, too, and so are the
links on the way: replacing one would put something else in that place.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from toolrest.policy.paths.hidden import HiddenList
from toolrest.policy.paths.names import unique

_MOST = 40
"""So many links in a row are too many for the kernel, too."""


class Links(NamedTuple):
    """Links that must stay, the real paths at their ends, and folders that lead to `..`."""

    held: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    """Names behind a link of `/proc`, which leads each process elsewhere."""

    @classmethod
    def towards(
        cls,
        paths: Iterable[str],
        writable: Callable[[str], bool],
        through: Iterable[str] = (),
    ) -> Links:
        """The links on the way to these names, as far as they are writable.

        `through` are more names on whose way links must stay; their ends are another matter.
        """
        held: list[str] = []
        ends: list[str] = []
        passed: list[str] = []
        moving: list[str] = []
        for number, names in enumerate((paths, through)):
            for path in names:
                links, end, left = _walk(path)
                if not links:
                    continue
                held += filter(writable, links)
                passed += filter(writable, left)
                ends += filter(writable, () if number else end)
                moving += [path] if any(link.startswith("/proc/") for link in links) else []
        return cls(unique(held), unique(ends), unique(passed), unique(moving))


def _walk(path: str) -> tuple[list[str], list[str], list[str]]:
    """As the kernel goes: the links on the way by their real folders, the end if there is one, and
    the folders in whose place a link would lead `..` elsewhere.
    """
    links: list[str] = []
    passed: list[str] = []
    here, ahead = "/", path.split("/")[::-1]
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            passed.append(here)
            here = os.path.dirname(here)
            continue
        step = os.path.join(here, name)
        try:
            target = os.readlink(step)
        except OSError:
            here = step  # no link, or nothing at all
            continue
        links.append(step)
        if len(links) > _MOST:
            return links, [], passed
        ahead += target.split("/")[::-1]
        if target.startswith("/"):
            here = "/"
    return links, [here], passed


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
