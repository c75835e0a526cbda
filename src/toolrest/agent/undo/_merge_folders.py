"""A private folder that is used again and again: made and checked once, then only found again."""

from __future__ import annotations

import os
import weakref

from toolrest.private_files import private_folder


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
