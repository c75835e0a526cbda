"""Placeholder folders: empty folders that are used again and again, known by their mtime.

Each command needs a handful of empty folders for a moment. Renaming kept ones into place and back
costs microseconds; making and removing them frees disk blocks each time, which takes milliseconds
on a disk that discards every freed block. Where the kept ones are on another file system,
folders are made and removed after all.

A kept folder's time of change is set to a moment long ago. Putting something into it moves that
time, so the time shows whether it is still empty; only a folder from another session, where the
time could have been set back, is looked into. The time distinguishes placeholders from what a user
has made, and also says whose they are: sessions that do not share their records (another user's)
cannot know what the others still use, and must not clean up after them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
from collections.abc import Callable
from errno import ENOTSUP, EXDEV
from functools import cache
from itertools import count
from secrets import token_hex
from typing import NamedTuple

from toolrest.private_files import PLACEHOLDER_TIMES, make_private, placeholder_time, regular_file

_FILE = "mark"


@cache
def placeholder_mtime(registry: str) -> int:
    """The time by which placeholders of the sessions that share this folder are known."""
    path = os.path.join(registry, _FILE)
    with contextlib.suppress(FileExistsError):
        draft = f"{path}-{secrets.token_hex(8)}"
        try:
            with open(draft, "x") as file:
                file.write(str(secrets.randbelow(PLACEHOLDER_TIMES)))
            os.link(draft, path)
        finally:
            os.unlink(draft)
    with open(path, opener=regular_file) as file:
        text = file.read(16)
    number = int(text) % PLACEHOLDER_TIMES if text.isascii() and text.isdigit() else 0
    return placeholder_time(number)


def mark(file: int | bytes | str, time: int) -> None:
    """Set the time of change by which a placeholder is known, where the file system takes it."""
    with contextlib.suppress(OSError):
        os.utime(file, ns=(time, time))


_AT_FDCWD = -100
_NO_REPLACE = 1
_NOT_FOLLOWED, _BIRTH = 0x100, 0x800

Identity = tuple[int, int]


class PooledFolder(NamedTuple):
    """A folder of ours, where it lies between uses, and how to know it again."""

    place: bytes
    identity: Identity
    born: bytes
    """A folder that a user makes in place of a removed one may get its number."""


class FolderPool:
    """A folder full of empty folders, shared by every session of this user."""

    def __init__(self, home: str, mark: int) -> None:
        make_private(home)
        self._mark = mark
        self._home = os.fsencode(home)
        self._device = os.stat(home).st_dev
        self._free = [os.path.join(self._home, name) for name in os.listdir(self._home)]
        self._used: dict[bytes, PooledFolder] = {}
        """By path: the folder that was there last, which goes there again."""
        self._rename = renamer()
        self._names = (f"/{token_hex(4)}-{number}".encode() for number in count())

    def place(self, folder: int, path: str) -> None:
        """Put an empty folder there; FileExistsError when the name is taken.

        Another OSError where none can be moved there.
        """
        target = os.fsencode(os.path.basename(path))
        kept = self._used.get(os.fsencode(path))
        if kept is not None:
            try:
                self._rename(kept.place, folder, target)
                return
            except FileExistsError:
                raise
            except OSError:
                del self._used[os.fsencode(path)]  # another session was faster, for one
        if os.fstat(folder).st_dev != self._device:
            raise OSError(EXDEV, os.strerror(EXDEV), path)
        self._put_any(folder, path, target)

    def knows(self, path: bytes, place: bytes, info: os.stat_result) -> bool:
        """Whether what is at `place` is the folder that was put at `path` last."""
        kept = self._used.get(path)
        same = kept is not None and kept.identity == (info.st_dev, info.st_ino)
        return same and kept is not None and kept.born == birth_time(place)

    def _put_any(self, folder: int, path: str, target: bytes) -> None:
        while True:
            place = self._free.pop() if self._free else self._new()
            try:
                info = os.lstat(place)
                if os.listdir(place) or not (self._is_ours(info) or self._marked(place)):
                    continue  # a file that was left in there is not shown to others
                if not self._is_ours(os.lstat(place)):
                    raise OSError(ENOTSUP, os.strerror(ENOTSUP))
                born = birth_time(place)
                self._rename(place, folder, target)
            except FileNotFoundError:
                continue  # another session was faster
            except FileExistsError:
                self._free.append(place)
                raise
            self._used[os.fsencode(path)] = PooledFolder(place, (info.st_dev, info.st_ino), born)
            return

    def _new(self) -> bytes:
        """One more kept folder: it appears in its place marked, or not at all."""
        place = self._home + next(self._names)
        os.mkdir(place, 0o755)
        return place

    def reclaim(self, path: bytes, place: bytes, seen: os.stat_result) -> None:
        """Remove the empty folder of `path`, which `place` leads to; one in use stays there."""
        if not self._is_ours(seen) and os.listdir(place):
            return
        if seen.st_dev != self._device:
            os.rmdir(place)
            return
        identity = (seen.st_dev, seen.st_ino)
        kept = self._used.get(path)
        if kept is None or kept.identity != identity:
            born = birth_time(place)
            kept = PooledFolder(self._home + next(self._names), identity, born)
        try:
            self._rename(place, _AT_FDCWD, kept.place)
        except OSError:
            os.rmdir(place)
            return
        if self._is_ours(os.lstat(kept.place)) or self._marked(kept.place):
            self._used[path] = kept
            return
        self._used.pop(path, None)
        try:
            self._rename(kept.place, _AT_FDCWD, place)  # something was put there just now
        except FileExistsError:  # and, as it was gone for a moment, the folder made again
            self._merge_back(kept.place, place)

    def _merge_back(self, place: bytes, path: bytes) -> None:
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in os.listdir(place):
                with contextlib.suppress(FileExistsError):  # what is there now is newer
                    self._rename(os.path.join(place, name), folder, name)
        finally:
            os.close(folder)

    def _is_ours(self, info: os.stat_result) -> bool:
        return info.st_mtime_ns == self._mark

    def _marked(self, folder: bytes) -> bool:
        """Set the time of change that says empty, if it is; what comes later moves it again."""
        mark(folder, self._mark)
        if not os.listdir(folder):
            return True
        os.utime(folder)
        return False


def birth_time(path: bytes) -> bytes:
    """When an entry was made, as the kernel writes it; the same for all where it does not know."""
    status = ctypes.create_string_buffer(256)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is not None:
        statx(_AT_FDCWD, path, _NOT_FOLLOWED, _BIRTH, status)
    return status.raw[80:92]


@cache
def renamer() -> Callable[[bytes, int, bytes], None]:
    """A rename() that never replaces anything; os.rename would take an empty folder's place."""
    system_call = ctypes.CDLL(None, use_errno=True).renameat2

    def rename(source: bytes, folder: int, target: bytes) -> None:
        if system_call(_AT_FDCWD, source, folder, target, _NO_REPLACE) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fsdecode(target))

    return rename
