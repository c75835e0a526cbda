"""How are symbolic links on the way to protected names kept from being replaced?

Bubblewrap can mount nothing on a link. So the process that starts it does: it shows the writable
folder a second time, with a mount of each link on itself there, and one on every folder that must
not be moved away. Bubblewrap takes the folder from there, with all mounts in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from toolrest.policy.links import Links
from toolrest.policy.names import inside
from toolrest.process.command import Linked
from toolrest.process.helper import wire
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.view import BINDS, Mount

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


def linked(found: dict[str, list[str]], folders: Iterable[str], mounts: Iterable[Mount]) -> Linked:
    """What the starting process must know; raises where that would be too much, or be seen."""
    pinned = sorted(folders)
    if len(pinned) > _MOST_FOLDERS or sum(map(len, found.values())) > _MOST_LINKS:
        raise SandboxUnavailable(
            "sandbox: too many symbolic links or folders lead to protected names"
            f" (at most {_MOST_LINKS} and {_MOST_FOLDERS}), among them"
            f" {next(iter(found.values()))[0]}.",
            remedy="Put there what they lead to.",
        )
    for mount in mounts if found else ():
        source = mount.source or mount.path
        ours = any(source.startswith(f"{wire.COPIES}/{number}") for number in range(len(found)))
        if mount.show in BINDS and not ours and _touches(source):
            raise SandboxUnavailable(
                f"sandbox: {source} cannot be shown where symbolic links lead to protected names"
                f" ({next(iter(found.values()))[0]}): {wire.COPIES} is needed for holding them.",
                remedy="Move it elsewhere, or put there what the link leads to.",
            )
    return tuple(
        (folder, tuple(path for path in pinned if inside(path, folder)), tuple(links))
        for folder, links in found.items()
    )


def _touches(source: str) -> bool:
    return source != "/" and (inside(source, wire.COPIES) or inside(wire.COPIES, source))


def _towards(links: Links, end: str) -> str:
    leading = (link for link in links.held if os.path.realpath(link) == end)
    return next(leading, (*links.held, end)[0])
