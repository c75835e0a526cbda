"""Empty folders that are used again and again.

Each command needs a handful of empty folders for a moment. Renaming kept ones into place and back
costs microseconds; making and removing them frees disk blocks each time, which takes milliseconds
on a disk that is told about every freed block. Where the kept ones are on another file system,
folders are made and removed after all.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import cache
from itertools import count

_AT_FDCWD = -100
_NO_REPLACE = 1
_GRAIN_NS = 3_000_000_000  # the coarsest clock of a common file system, and a bit
_count = count()


class Spares:
    """A folder full of empty folders, shared by every session of this user."""

    def __init__(self, home: str) -> None:
        os.makedirs(home, mode=0o700, exist_ok=True)
        self._home = home
        self._device = os.stat(home).st_dev
        self._known = [os.path.join(home, name) for name in os.listdir(home)]

    def put(self, folder: int, name: str) -> None:
        """An empty folder of this name; FileExistsError when the name is taken."""
        if os.fstat(folder).st_dev == self._device:
            while self._known:
                spare = self._known.pop()
                try:
                    _rename(spare, folder, name)
                    return
                except FileNotFoundError:
                    continue  # another session was faster
                except FileExistsError:
                    self._known.append(spare)
                    raise
                except OSError:
                    break
        os.mkdir(name, 0o755, dir_fd=folder)

    def take_back(self, path: str, empty_since: int = 0) -> None:
        """Remove an empty folder; one that is in use stays where it is.

        `empty_since` is the time of its last change, where that is known and was before anybody
        could put something there; looking at it again is cheaper than looking inside.
        """
        sure = 0 < empty_since < time.time_ns() - _GRAIN_NS
        if not sure and os.listdir(path):
            return
        kept = f"{self._home}/{os.getpid()}-{next(_count)}"
        try:
            _rename(path, _AT_FDCWD, kept)
        except OSError:
            os.rmdir(path)
            return
        if sure and os.lstat(kept).st_mtime_ns == empty_since:
            self._known.append(kept)
        elif os.listdir(kept):  # somebody put something there just now
            _rename(kept, _AT_FDCWD, path)
        else:
            self._known.append(kept)


@cache
def _renameat2() -> Callable[..., int]:
    function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).renameat2
    return function


def _rename(source: str, folder: int, target: str) -> None:
    """rename() that never replaces anything; os.rename would take an empty folder's place."""
    one, other = os.fsencode(source), os.fsencode(target)
    if _renameat2()(_AT_FDCWD, one, folder, other, _NO_REPLACE) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)
