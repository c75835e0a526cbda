"""Is the process still there that began a turn?

It holds a lock on a file named after the turn, which ends with the process whatever happens. The
file is put aside after the turn and renamed for the next one: making files costs more than the
rest of a checkpoint.

A private folder that is used again and again: made and checked once, then only found again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import KeysView
from secrets import token_hex

from toolrest.private_files import is_locked, private_folder


class HeldFolder:
    """Stays open as long as this object lives; used by one thread at a time."""

    def __init__(self, base: str, *names: str) -> None:
        self.path = os.path.join(base, *names)
        self._base, self._names = base, names
        self._identity: tuple[int, int] | None = None
        self._close: weakref.finalize[..., HeldFolder] | None = None
        self._fd = -1

    def open(self) -> int:
        """Its descriptor, not to be closed; made anew when its path leads elsewhere by now."""
        if self._identity is None or self._identity != _identity(self.path):
            if self._close is not None:
                self._identity = None
                self._close()
            self._fd = private_folder(self._base, *self._names)
            self._close = weakref.finalize(self, os.close, self._fd)
            status = os.fstat(self._fd)
            self._identity = (status.st_dev, status.st_ino)
        return self._fd


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_NEW = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_IDLE = "idle-"


class Claims:
    """The turns that this process holds, and whether those of others are held."""

    def __init__(self, parent: str) -> None:
        self._folder = HeldFolder(parent, "open")
        self._held: dict[int, int] = {}
        self._name = _IDLE + token_hex(8)
        self._aside: list[int] = []
        """The descriptor of the file that waits under that name for the next turn, if any."""
        self._tidied = False
        weakref.finalize(self, _let_go, self._held, self._aside)

    @property
    def held(self) -> KeysView[int]:
        """The numbers of our own turns."""
        return self._held.keys()

    def take(self, number: int) -> None:
        """Hold a turn that has just got its number."""
        folder = self._folder.open()
        if not self._tidied:
            self._tidy(folder)
        if self._aside:
            fd = self._aside.pop()
            try:
                os.rename(self._name, str(number), src_dir_fd=folder, dst_dir_fd=folder)
                self._held[number] = fd
                return
            except OSError:
                os.close(fd)  # the folder was moved away, for one
        fd = os.open(str(number), _NEW, 0o600, dir_fd=folder)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._held[number] = fd

    def release(self, number: int) -> None:
        """The turn has ended: ours, or one whose process is gone."""
        fd = self._held.pop(number, None)
        with contextlib.suppress(OSError):
            if fd is not None and not self._aside:
                os.rename(self._place(number), os.path.join(self._folder.path, self._name))
                self._aside.append(fd)
                return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._place(number))
        if fd is not None:
            os.close(fd)

    def is_alive(self, number: int) -> bool:
        """Whether some process still holds the turn."""
        try:
            return is_locked(self._place(number))
        except FileNotFoundError:
            return False

    def _place(self, number: int) -> str:
        return os.path.join(self._folder.path, str(number))

    def _tidy(self, folder: int) -> None:
        """Remove what processes that are gone have put aside."""
        self._tidied = True
        for name in os.listdir(folder):
            place = os.path.join(self._folder.path, name)
            with contextlib.suppress(OSError):
                if name.startswith(_IDLE) and not is_locked(place):
                    os.unlink(place)


def _let_go(held: dict[int, int], aside: list[int]) -> None:
    for fd in (*held.values(), *aside):
        with contextlib.suppress(OSError):
            os.close(fd)
