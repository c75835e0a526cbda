"""Removal of placeholders that a dead session left in the user's folders.

`sandbox/guard/placeholders.py` makes them. It writes the path of each into the record of its folder
before it makes it, and holds a lock on that record for as long as a command runs on it; the keeper
of the command holds the same lock. So where a lock is free, whatever the record names is litter.

A placeholder is known by its time of change, which lies long ago: what users make or change has
another. A record only grows while it is in use, so that one whose writing was interrupted still
names all that was made.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from itertools import groupby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BY_NAME = 0
"""Instead of a time of change: a draft, of which only the name is known to be ours."""
DRAFT = ".toolrest-new-"
RECORD, GUARD = ".record", ".lock"

_PATIENCE = 2.0
_AWAY = "away-"

Entry = tuple[int, bytes]
"""The time of change in ns, or `BY_NAME`, and the path."""


def line(entry: Entry) -> bytes:
    """An entry as it is written in a record."""
    return b"%d %s\0" % entry


def parse(data: bytes) -> list[Entry]:
    """The entries of a record."""
    fields = (field.partition(b" ") for field in data.split(b"\0"))
    return [(int(at), path) for at, _, path in fields if at.isdigit() and path[:1] == b"/"]


def read(record: int) -> bytes:
    """A whole record."""
    return os.pread(record, os.fstat(record).st_size, 0)


def lock(fd: int, how: int) -> bool:
    """Lock a file if that can be done at once."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sweep(registry: str) -> bool:
    """Remove whatever the records of this folder name; False where a session still uses some."""
    try:
        names = [name for name in os.listdir(registry) if name.endswith(RECORD)]
    except OSError:
        return True
    is_clean = True
    for name in names:
        try:
            is_clean = _sweep_record(os.path.join(registry, name)) and is_clean
        except OSError:
            continue
    return is_clean


def _sweep_record(path: str) -> bool:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    record = os.open(path, flags)
    try:
        if not parse(read(record)):
            return True
        guard = os.open(path.removesuffix(RECORD) + GUARD, flags | os.O_CREAT, 0o600)
        try:
            if not (_locked(guard) and lock(record, fcntl.LOCK_EX)):
                return False
            data = read(record)
            registry = os.path.dirname(path)
            for_each(reversed(parse(data)), lambda at, _, place: remove((at, place), registry))
            os.pwrite(record, bytes(len(data)), 0)
            return True
        finally:
            os.close(guard)
    finally:
        os.close(record)


def _locked(guard: int) -> bool:
    """Wait for a session that looks at the record just now; one that was stopped has it longer."""
    until = time.monotonic() + _PATIENCE
    while not lock(guard, fcntl.LOCK_EX):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def open_folder(folder: bytes) -> int:
    """Open a folder, refusing every link on the way.

    A command may have put one in place of any folder that it could write, to have a placeholder
    made or removed elsewhere; this process is not confined.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags)
    for name in filter(None, folder.split(b"/")):
        try:
            step = os.open(name, flags, dir_fd=fd)
        finally:
            os.close(fd)
        fd = step
    return fd


def for_each(entries: Iterable[Entry], act: Callable[[int, bytes, bytes], None]) -> None:
    """Call `act` with each entry's time, its path, and the path by way of its open folder.

    The latter holds whatever happens to the folder's name. An entry whose folder is gone, or for
    which `act` raises OSError, is passed over.
    """
    for parent, group in groupby(entries, lambda entry: os.path.dirname(entry[1])):
        try:
            folder = open_folder(parent)
        except OSError:
            continue
        try:
            for at, path in group:
                try:
                    act(at, path, b"/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
                except OSError:
                    continue
        finally:
            os.close(folder)


def remove(entry: Entry, registry: str) -> None:
    """Remove what an entry means, if it is unchanged; its path leads by way of an open folder."""
    at, path = entry
    info = os.lstat(path)
    if not _is_same(entry, info):
        return
    if stat.S_ISDIR(info.st_mode):
        os.rmdir(path)  # which fails where something was put into it
    elif at == BY_NAME:
        os.unlink(path)
    else:
        _take_away(entry, os.fsencode(os.path.join(registry, _AWAY + os.urandom(8).hex())))


def _is_same(entry: Entry, info: os.stat_result) -> bool:
    at, path = entry
    if at == BY_NAME:
        return os.path.basename(path).startswith(os.fsencode(DRAFT))
    return info.st_mtime_ns == at


def _take_away(entry: Entry, away: bytes) -> None:
    """Remove a file, but for one that a user put in its place this moment."""
    _, path = entry
    try:
        os.rename(path, away)
    except OSError:
        os.unlink(path)  # it is on another file system
        return
    info = os.lstat(away)
    if not _is_same(entry, info) and stat.S_ISDIR(info.st_mode):
        os.rename(away, path)
        return
    if not _is_same(entry, info):
        os.link(away, path, follow_symlinks=False)  # which never replaces what is there
    os.unlink(away)
