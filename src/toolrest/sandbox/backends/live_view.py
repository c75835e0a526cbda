"""The view of commands that run, for one more beside them.

A view is settled when no command runs. Later ones have the same view, but not where the host has
changed: bubblewrap would make a file or folder where a mount point is gone, and give up where a
folder that it overlays is gone or has a mount inside.

A mount in a root keeps running commands from replacing what it is on. When the user removes or
replaces that, the mount goes with it, and a running command may put a link in its place, in any
moment. So nothing is shown from there again by its name.

Bubblewrap makes what it is to mount on, where that is missing. A hidden file that the user removes
between our look and the mount would come back empty, so that is taken away again.
"""

from __future__ import annotations

import os
import stat
import time
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress

from toolrest.process.helper.litter import open_folder
from toolrest.sandbox.backends.view import Mount, Show, View
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable, unseen
from toolrest.sandbox.guard.placeholder_folders import birth_time

_REMEDY = "Another one can run when that one has ended."
_IN_PLACE = (Show.WRITE, Show.READ, Show.HIDE)
_FROM_PLACE = (Show.WRITE, Show.READ)
_MOST_HELD = 256
_NOTHING = (0, 0)
_MADE = (stat.S_IFREG | 0o444, stat.S_IFDIR | 0o755)
"""Types and modes of what bubblewrap makes."""
_CLOCK_NS, _START_NS = 20_000_000, 1_000_000_000
"""How far file times lag behind the clock, and how long a start may take."""

_Identity = tuple[int, int] | tuple[int, int, bytes]
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class LiveView:
    """A settled view, and what was gone of it when a command started since."""

    def __init__(self, settled: View) -> None:
        self._settled = settled
        self._gone: set[str] = set()
        self._identities: Mapping[str, _Identity] = {}
        self._began = 0
        self._were: dict[str, _Identity] = {}
        self._let_go = weakref.finalize(self, _close, [])
        self._from_place = [
            mount.path
            for mount in settled.settled().values()
            if mount.show in _FROM_PLACE and not mount.source and settled.is_writable(mount.path)
        ]
        self._hidden = [
            mount.path
            for mount in settled.settled().values()
            if mount.show == Show.HIDE and settled.is_writable(mount.path)
        ]

    def begin(self) -> None:
        """Take what is in place now for what it is to be; before a command that runs alone."""
        self._let_go()
        self._gone.clear()
        self._began = time.time_ns() - _CLOCK_NS
        looked = ((path, _look(path)) for path in self._hidden)
        self._were = {
            path: _identity(path, info, is_held=False) for path, info in looked if info is not None
        }
        self._identities, held = _hold(self._from_place)
        self._let_go = weakref.finalize(self, _close, held)

    def end(self) -> None:
        """No command runs any more: take away what bubblewrap made of a hidden name."""
        for path, was in self._were.items():
            with suppress(OSError, SandboxUnavailable):
                info = _look(path)
                if info is None or info.st_mode not in _MADE:
                    continue
                is_new = 0 <= info.st_ctime_ns - self._began <= _START_NS
                if is_new and _identity(path, info, is_held=False) != was:
                    _remove_made(path)

    def now(self, overlays: Iterable[str], stores: Iterable[str]) -> View:
        """The view of a further command; SandboxBusy where it could not be safe."""
        view = self._settled
        mounts = {
            path: mount
            for path, mount in view.settled().items()
            if mount.show != Show.OVERLAY and self._stays(mount)
        }
        masks = {path: shown for path, shown in view.masks.items() if self._masks(path, shown)}
        for path in {*masks.values()} - {"", *mounts}:  # the one that is shown for all of them
            raise _busy(path, "is hidden from commands and was removed")
        now = view.with_mounts(mounts, masks)
        now.overlay(path for path in overlays if now.can_overlay(path))
        for path in stores:
            now.put(path, Show.HIDE)
        return now

    def _stays(self, mount: Mount) -> bool:
        """Whether what a mount was made for is still there."""
        path = mount.path
        if mount.source or mount.show not in _IN_PLACE:
            return True  # made for nothing of the host's, or for what is always there
        if not self._settled.is_writable(path):
            return os.path.lexists(path)
        info = _look(path)
        if info is None:
            if mount.show == Show.READ and path not in self._settled.policy.exceptions:
                raise _busy(path, "was removed")
        elif stat.S_ISLNK(info.st_mode):
            raise _busy(path, "was replaced by a link")
        elif path not in self._gone and not self._is_same(path, info):
            raise _busy(path, "was replaced")
        return self._is_there(path, info, hidden=mount.show == Show.HIDE)

    def _is_same(self, path: str, info: os.stat_result) -> bool:
        known = self._identities.get(path)
        return known is None or known == _identity(path, info, is_held=len(known) == 2)

    def _masks(self, path: str, shown: str) -> bool:
        return self._is_there(path, _look(path), hidden=shown != "")

    def _is_there(self, path: str, info: os.stat_result | None, *, hidden: bool) -> bool:
        """Whether a path is there, as it always was; SandboxBusy for a secret that came back.

        Sockets that come while a command runs are not masked, however they come.
        """
        if info is None:
            self._gone.add(path)
        elif path in self._gone and hidden and not stat.S_ISSOCK(info.st_mode):
            raise _busy(path, "is hidden from commands and came back")
        return path not in self._gone


def _hold(paths: Iterable[str]) -> tuple[Mapping[str, _Identity], list[int]]:
    """Device and inode of each path, and descriptors that keep these inodes from another use.

    Of very many paths the later ones are known by the time at which they were made, instead.
    """
    identities: dict[str, _Identity] = {}
    held: list[int] = []
    for path in paths:
        info = _look(path)
        is_held = info is not None and len(held) < _MOST_HELD
        if is_held:
            with suppress(FileNotFoundError):
                held.append(os.open(path, _HOLD))
                info = os.fstat(held[-1])
        identities[path] = _NOTHING if info is None else _identity(path, info, is_held=is_held)
    return identities, held


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _identity(path: str, info: os.stat_result, *, is_held: bool) -> _Identity:
    found = info.st_dev, info.st_ino
    return found if is_held else (*found, birth_time(os.fsencode(path)))


def _remove_made(path: str) -> None:
    """Remove an empty file or folder."""
    folder = open_folder(os.fsencode(os.path.dirname(path)))
    try:
        name = os.path.basename(path)
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            os.rmdir(name, dir_fd=folder)
        elif info.st_mode in _MADE and info.st_size == 0:
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def _look(path: str) -> os.stat_result | None:
    """What is at a path; None when nothing is. A folder that a command closed hides nothing."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unseen(path) from error


def _busy(path: str, what: str) -> SandboxBusy:
    return SandboxBusy(f"sandbox: {path} {what} while a command was running.", remedy=_REMEDY)
