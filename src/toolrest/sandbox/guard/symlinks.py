"""Symbolic links on the way to protected names, kept from being replaced.

Bubblewrap can mount nothing on a link. So the process that starts it does: it shows the writable
folder a second time, with a mount of each link on itself there, and one on every folder that must
not be moved away. Bubblewrap takes the folder from there, with all mounts in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from toolrest.policy.paths.links import Links
from toolrest.policy.paths.names import inside
from toolrest.process.command import Linked
from toolrest.sandbox.errors import SandboxUnavailable

_MOST_LINKS = 64
_MOST_FOLDERS = 256


def by_folder(links: Links, writable: Iterable[str]) -> dict[str, list[str]]:
    """The links in each of these folders, of folders in each other in the outermost."""
    found: dict[str, list[str]] = {}
    folders = sorted(writable, key=len)
    for link in links.held:
        found.setdefault(next(f for f in folders if inside(link, f)), []).append(link)
    return found


def check(links: Links, roots: Iterable[str], present: Iterable[str]) -> None:
    """Raises where a link leads to what cannot be protected; `present` cannot be written anyway."""
    roots, present = tuple(roots), tuple(present)
    for name in links.moving:
        raise SandboxUnavailable(
            f"sandbox: {name} leads through /proc, which is another place for every process.",
            remedy="Remove the symbolic link.",
        )
    for end in (*links.passed, *links.ends):
        link = _towards(links, end)
        if not os.path.lexists(end) and not any(inside(end, path) for path in present):
            raise SandboxUnavailable(
                f"sandbox: the symbolic link {link} leads to {end}, which is not there: a command"
                " could make it.",
                remedy="Make it yourself, or remove the link.",
            )
    for end in links.ends:
        if any(inside(root, end) for root in roots):
            raise SandboxUnavailable(
                f"sandbox: the symbolic link {_towards(links, end)} leads to {end}, which commands"
                " may write.",
                remedy="Remove the link.",
            )


def linked(found: dict[str, list[str]], folders: Iterable[str]) -> Linked:
    """What the starting process must know; raises where that would be too much."""
    pinned = sorted(folders)
    if len(pinned) > _MOST_FOLDERS or sum(map(len, found.values())) > _MOST_LINKS:
        raise SandboxUnavailable(
            "sandbox: too many symbolic links or folders lead to protected names"
            f" (at most {_MOST_LINKS} and {_MOST_FOLDERS}), among them"
            f" {next(iter(found.values()))[0]}.",
            remedy="Replace the links by their targets.",
        )
    return tuple(
        (folder, tuple(path for path in pinned if inside(path, folder)), tuple(links))
        for folder, links in found.items()
    )


def _towards(links: Links, end: str) -> str:
    leading = (link for link in links.held if os.path.realpath(link) == end)
    return next(leading, (*links.held, end)[0])
