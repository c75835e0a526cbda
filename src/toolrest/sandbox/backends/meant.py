"""What must be mounted for a command, so that it can be checked before the command runs.

See `process/helper/views.py` for the check, and `sandbox/guard/neighbours.py` for when it is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from toolrest.policy.paths.names import inside
from toolrest.process.command import Linked, ViewCheck
from toolrest.process.helper import wire
from toolrest.process.helper.litter import open_folder
from toolrest.sandbox.backends.view import RUN, TMP, VAR_TMP, Mount, Show
from toolrest.sandbox.guard.neighbours import Neighbours
from toolrest.sandbox.policy import SandboxPolicy

_OPTIONS = {
    **dict.fromkeys(("--bind", "--ro-bind", "--dev-bind", "--symlink"), 2),
    **dict.fromkeys(("--tmpfs", "--perms", "--dir", "--dev", "--proc", "--remount-ro"), 1),
    **dict.fromkeys(("--overlay-src", "--tmp-overlay", "--ro-overlay"), 1),
}
"""Bubblewrap's options that make the view, and how many words follow each."""
_BY_BUBBLEWRAP = (
    *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "kvm")),
    *("/dev/console", "/dev/pts"),
    *(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus")),
)
"""What it mounts in its own /dev and /proc, and we for a machine."""
_KINDS = {
    Show.ROOT: wire.SAME,
    Show.WRITE: wire.SAME,
    Show.PRIVATE: wire.SAME,
    Show.READ: wire.SAME_READ_ONLY,
    Show.HIDE: wire.COVERED,
    Show.EMPTY_READ_ONLY: wire.COVERED,
    Show.SCRATCH: wire.OPEN,
    Show.PARENT_OF_MOUNT: wire.CLOSED,
    Show.OVERLAY: wire.CLOSED,
}
_COPIES = f"{wire.COPIES}/"
_NOWHERE = (0, 0)

_Place = tuple[str, int, int, int]


class ViewChecks:
    """Makes the checks of one session's commands, as far as they are due."""

    def __init__(self, policy: SandboxPolicy, neighbours: Neighbours | None) -> None:
        self._policy = policy
        self._neighbours = neighbours

    def are_due(self) -> bool:
        """Whether something runs that could bend a view while it is made.

        The commands of this session cannot: they are kept from it by the same mounts.
        """
        return self._neighbours is not None and self._neighbours.are_running()

    def of(
        self,
        mounts: Iterable[Mount],
        masks: Iterable[tuple[str, str]],
        linked: Linked,
        words: Sequence[str],
        host: Iterable[str],
    ) -> ViewCheck | None:
        """What the view of these mounts, masks and links must be; None when no check is due.

        `words` are bubblewrap's arguments for it, `host` the host's own mount points.
        """
        if not self.are_due():
            return None
        known = _Identities()
        try:
            places = [
                _place(self._policy, mount, known) for mount in mounts if mount.show in _KINDS
            ]
            places += [
                (path, wire.COVERED if shown else wire.SAME, *known.strict(path))
                for path, shown in masks
            ]
        finally:
            known.close()
        points = _points(words, tuple(host))
        held = [path for _, folders, links in linked for path in (*folders, *links)]
        kept = (*_BY_BUBBLEWRAP, *held)
        return ViewCheck(
            tuple(place for place in places if place[0] != "/"),
            (*points, *kept, *((wire.COPIES, _COPIES) if held else ())),
            (*(path for path, writable in points.items() if writable), *kept),
        )


def _place(policy: SandboxPolicy, mount: Mount, known: _Identities) -> _Place:
    path, source = mount.path, mount.source
    in_place = not source or source.startswith(_COPIES)
    if in_place and mount.show is Show.READ and _lies_in(path, (RUN, TMP, VAR_TMP)):
        in_place = _lies_in(path, (*policy.roots, policy.workspace))  # or our own Python's
    found = known.strict(path) if in_place else _followed(source or path)
    return (path, _KINDS[mount.show], *found)


def _lies_in(path: str, places: Iterable[str]) -> bool:
    return any(inside(path, place) for place in places)


def _followed(path: str) -> tuple[int, int]:
    try:
        info = os.stat(path)
    except OSError:
        return _NOWHERE
    return info.st_dev, info.st_ino


class _Identities:
    """Device and inode of paths, on the way to which no link is followed."""

    def __init__(self) -> None:
        self._folders: dict[str, int] = {}

    def strict(self, path: str) -> tuple[int, int]:
        folder, name = os.path.split(path)
        try:
            if folder not in self._folders:
                self._folders[folder] = open_folder(os.fsencode(folder))
            info = os.stat(name or ".", dir_fd=self._folders[folder], follow_symlinks=False)
        except OSError:
            return _NOWHERE
        return info.st_dev, info.st_ino

    def close(self) -> None:
        for fd in self._folders.values():
            os.close(fd)


def _points(words: Sequence[str], host: Sequence[str]) -> dict[str, bool]:
    """The paths at which these arguments mount something, and whether it stays writable."""
    found: dict[str, bool] = {}
    at = 0
    while at < len(words):
        option = words[at]
        given = words[at + 1 : at + 1 + _OPTIONS[option]]
        at += 1 + len(given)
        path = given[-1]
        if option in ("--bind", "--ro-bind", "--dev-bind"):
            source = path if given[0].startswith(_COPIES) else given[0]
            for point in (source, *(place for place in host if inside(place, source))):
                below = os.path.relpath(point, source)
                found[os.path.normpath(os.path.join(path, below))] = option != "--ro-bind"
        elif option in ("--remount-ro", "--ro-overlay"):
            found[path] = False
        elif option in ("--tmpfs", "--tmp-overlay", "--dev", "--proc"):
            found[path] = True
    return found
