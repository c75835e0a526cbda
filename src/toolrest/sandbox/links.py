"""Which symbolic links lead to a protected place, and where do they end?

A protected name may be a link, or lie behind one. What it leads to is protected like any file;
but whoever replaces a link on the way puts something else in that place. So those links are held
where they are. (Bubblewrap can mount nothing on a link: the process that starts it does.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from toolrest.policy.names import inside, unique
from toolrest.sandbox.errors import SandboxUnavailable

_MOST = 40
"""So many links in a row are too many for the kernel, too."""


Linked = tuple[tuple[str, tuple[str, ...]], ...]
"""Folders, and the links in each that must stay."""


class Links(NamedTuple):
    """Links that must stay, the real paths at their ends, and folders that lead to `..`."""

    held: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()

    @classmethod
    def towards(cls, paths: Iterable[str], writable: Callable[[str], bool]) -> Links:
        """The links on the way to these names, as far as somebody could write there."""
        found: tuple[list[str], list[str], list[str]] = ([], [], [])
        for path in paths:
            links, ends, passed = _walk(path)
            if links:
                for names, more in zip(found, (links, ends, passed), strict=True):
                    names += filter(writable, more)
        return cls(*map(unique, found))

    def by_folder(self, writable: Iterable[str]) -> Linked:
        """The links in each of these folders, of folders in each other in the outermost."""
        found: dict[str, list[str]] = {}
        folders = sorted(writable, key=len)
        for link in self.held:
            found.setdefault(next(f for f in folders if inside(link, f)), []).append(link)
        return tuple((folder, tuple(links)) for folder, links in found.items())

    def check(self) -> None:
        """Raises where a link leads to nothing: a command could make that."""
        for end in (*self.passed, *self.ends):
            if not os.path.lexists(end):
                raise SandboxUnavailable(
                    f"sandbox: the symbolic link {self._towards(end)} leads to {end}, which is not"
                    " there: a command could make it.",
                    remedy="Make it yourself, or remove the link.",
                )

    def _towards(self, end: str) -> str:
        return next((link for link in self.held if os.path.realpath(link) == end), self.held[0])


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
