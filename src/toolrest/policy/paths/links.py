"""Which symbolic links lead to a protected place, and where do they end?

A protected name may be a link, or lie behind one. What it leads to is as good as protected; and
whoever replaces a link on the way puts something else in that place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from toolrest.policy.paths.names import unique

_MOST = 40
"""So many links in a row are too many for the kernel, too."""


class Links(NamedTuple):
    """Links that must stay, the real paths at their ends, and folders that lead to `..`."""

    held: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    """Names behind a link of `/proc`, which leads everybody elsewhere."""

    @classmethod
    def towards(
        cls,
        paths: Iterable[str],
        writable: Callable[[str], bool],
        through: Iterable[str] = (),
    ) -> Links:
        """The links on the way to these names, as far as somebody could write there.

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
