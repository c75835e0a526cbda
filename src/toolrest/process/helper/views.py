"""The check of a command's mounts, made in its own namespace before it runs.

Bubblewrap mounts by path. Something that runs elsewhere and may write there, as a command of
another session does, can put a link in place of a folder between our look and the mount, and take
it away again. What was mounted can no longer be bent when all mounts are made: then their list and
what each of them shows is compared with what was meant.
"""

from __future__ import annotations

import os

from . import kernel, wire

_ESCAPES = ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\"))
_CLOSED = (wire.SAME_READ_ONLY, wire.COVERED, wire.CLOSED)


class _Mount:
    """One line of the list of mounts."""

    def __init__(self, fields: list[bytes]) -> None:
        self.number, self.parent = int(fields[0]), int(fields[1])
        self.path = fields[4]
        if b"\\" in self.path:
            for escape, character in _ESCAPES:
                self.path = self.path.replace(escape, character)
        self.writable = all(options.split(b",")[0] == b"rw" for options in (fields[5], fields[-1]))


def is_as_meant(table: bytes, check: wire.Check) -> bool:
    """Whether the mounts of this process's namespace, listed in `table`, are those of `check`."""
    places, points, free = check
    mounts = _visible(table)
    kinds = {path: kind for path, kind, _, _ in places}
    if not all(_may_be(mount, kinds, points, free) for mount in mounts.values()):
        return False
    try:
        return all(
            is_closed_to_all(place[0]) or _is(kernel.identity(place[0]), place, mounts)
            for place in places
        )
    except OSError:
        return False


def _visible(table: bytes) -> dict[int, _Mount]:
    """The mounts, by their numbers, that no other one covers; parents come before children."""
    every = [_Mount(line.split(b" ")) for line in table.splitlines()]
    at = {mount.number: mount for mount in every}
    covered = {m.parent for m in every if m.parent in at and at[m.parent].path == m.path}
    seen: dict[int, _Mount] = {}
    hidden: set[int] = set()
    for mount in every:
        parent = at.get(mount.parent)
        stacked = parent is not None and parent.path == mount.path
        if mount.parent in hidden or (mount.parent in covered and not stacked):
            hidden.add(mount.number)
        elif mount.number not in covered:
            seen[mount.number] = mount
    return seen


def _may_be(
    mount: _Mount, kinds: dict[bytes, int], points: tuple[bytes, ...], free: tuple[bytes, ...]
) -> bool:
    """Whether there may be such a mount; one that cannot be looked into does not count."""
    path = mount.path
    kind = kinds.get(path)
    allowed = kind is not None or path in points or _is_beneath(path, points)
    if mount.writable and (kind is None or kind in _CLOSED):
        allowed = path in free
    return allowed or is_closed_to_all(path)


def _is_beneath(path: bytes, points: tuple[bytes, ...]) -> bool:
    return path.startswith(
        tuple(point for point in points if point.endswith(b"/") and point != b"/")
    )


def is_closed_to_all(path: bytes) -> bool:
    """Whether nothing in this namespace can look there, as this process has every right in it.

    So it is where root, alone in a user namespace, meets a folder that only another user may enter.
    """
    try:
        os.lstat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _is(
    found: tuple[int, int, int],
    place: tuple[bytes, int, int, int],
    mounts: dict[int, _Mount],
) -> bool:
    """Whether a path leads to its very own mount, and that is what it must be."""
    path, kind, device, inode = place
    mount = mounts.get(found[2])
    if mount is None or mount.path != path or (mount.writable and kind in _CLOSED):
        return False
    same = found[:2] == (device, inode)
    if kind in (wire.SAME, wire.SAME_READ_ONLY):
        return same
    return kind != wire.COVERED or not same
