"""A record of names that commands may not change but could: what was there, and what differs now.

Kept in a folder of the home: status, hash and, up to a cap, contents. Looking whether anything
differs is one `lstat` a name; contents are read only where one does. Everything is reached through
folder descriptors that follow no link, and nothing but a plain file with one name is opened.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias

from toolrest.agent.undo.packs import Packs
from toolrest.agent.undo.records import FileRecord, parse, same
from toolrest.agent.undo.restore import parent_of
from toolrest.policy.paths.names import inside
from toolrest.private_files import (
    is_placeholder_entry,
    private_file,
    private_folder,
    reason,
    write_all,
)

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_F_SETSIG = 10
_TICK = 20_000_000
"""What changed so recently may change again within one tick of its time stamp."""

CAP = 1 << 20
"""Files up to this size are kept when they are recorded."""
KEEP = 16 << 20
"""And what is put back up to this one."""
MOST = 2000
"""A name with more entries below it is not watched."""
ROOM = 64 << 20
"""And so many bytes are kept of a name, and of all that is new while commands run: a file of holes
costs them nothing."""

Stamp: TypeAlias = tuple[int, int, int] | None
LIVING, LOCK, RECORD = "living", "lock", "record.json"


class WatchedNames:
    """The record of some names; `pinned` are git folders, of which only their identity counts."""

    def __init__(self, folder: str, workspace: str) -> None:
        self.folder = folder
        self.workspace = workspace
        self.names: set[str] = set()
        self.pinned: set[str] = set()
        self.left_out: set[str] = set()
        self.known: dict[str, FileRecord | None] = {}
        self.packs = Packs(folder)
        self.room = ROOM
        """Bytes that may still be kept of what is new; 0 once something was too much."""
        self.in_use = False
        """Whether a process lives that may have a file open, or mapped: only the first write
        through a mapping changes the times, so what is recorded now is read again each time."""
        self._stamps: dict[str, Stamp] = {}
        self._places: dict[str, str] = {}

    # Recording

    def add(self, names: Iterable[str], pinned: Iterable[str]) -> bool:
        """Record names that are not recorded yet, as they are; whether there were any."""
        names, pinned = set(names) - self.names, set(pinned) - self.pinned
        self.names |= names
        self.pinned |= pinned
        for name in sorted(names | pinned):
            self._record(name)
        return bool(names or pinned)

    def learn(self, path: str) -> None:
        """Record a name and all below it as it is now."""
        known = self.known.get(path)
        below = (one for one in self.known if inside(one, path))
        for gone in tuple(below) if known is not None and known.is_dir else (path,):
            if gone == path or gone not in self.pinned:
                self.known.pop(gone, None)
                self._stamps.pop(gone, None)
        self._record(path)

    def _record(self, path: str) -> None:
        room, self.room = self.room, ROOM
        found = dict(islice(self.look(path, CAP), MOST + 1))
        self.room = room
        if len(found) > MOST:
            self.left_out.add(path)
            self.names.discard(path)
            return
        for one, record in found.items():
            self._put(one, record)
        if path not in found and (path in self.names or path in self.pinned):
            self._put(path, None)  # anything else is new in its folder when it comes again

    def crowded(self, below: str) -> Iterator[tuple[str, FileRecord | None]]:
        """What is below names that are not watched, since they have too many entries."""
        for name in self.left_out:
            if inside(name, below):
                yield from self.look(name, 0)

    def miss(self, paths: Iterable[str]) -> None:
        """Record that there should be nothing at these paths."""
        for path in paths:
            self._put(path, None)

    def _put(self, path: str, record: FileRecord | None) -> None:
        self.known[path] = record
        self._stamps[path] = None if record is None else self._stamp(path, record)

    def _stamp(self, path: str, record: FileRecord) -> Stamp:
        if path in self.pinned:
            return record.inode, 0, record.mode
        fresh = self.in_use or record.ctime > time.time_ns() - _TICK
        return record.inode, -1 if fresh else record.ctime, record.mode

    # Comparing

    def differing(self) -> list[str]:
        """The names that may differ from what was recorded; no content is read."""
        found = []
        for path, known in self._stamps.items():
            try:
                info = os.lstat(path)
            except OSError:
                if known is not None:
                    found.append(path)
                continue
            pinned = path in self.pinned
            if known != (info.st_ino, 0 if pinned else info.st_ctime_ns, info.st_mode):
                found.append(path)
        return found

    def changes(
        self, differing: Iterable[str]
    ) -> dict[str, tuple[FileRecord | None, FileRecord | None]]:
        """What really differs, before and after, with what is there kept; the rest is refreshed."""
        found: dict[str, tuple[FileRecord | None, FileRecord | None]] = {}
        waiting = list(differing)
        while waiting:
            path = waiting.pop(0)
            if path in found:
                continue
            known = self.known.get(path)
            now = dict(self.look(path, KEEP, deep=known is None or not known.is_dir))
            if known is not None and known.is_dir and path not in self.pinned:
                there = now.get(path)
                if there is None or not there.is_dir:  # a link could lead to the same files
                    waiting += [one for one in self.known if inside(one, path) and one != path]
                for entry in self._new_in(path, there):
                    now.update(self.look(entry, KEEP))
            for one in {path, *now}:
                was, there = self.known.get(one), now.get(one)
                if not same(was, there):
                    found[one] = was, there
                elif one in self.known:
                    self._put(one, was if there is None else _with_content(there, was))
        self.packs.flush()
        return found

    def _new_in(self, path: str, now: FileRecord | None) -> list[str]:
        if now is None or not now.is_dir:
            return []
        return [name for name in _listed(path) if name not in self.known]

    def look(
        self, path: str, most: int, *, deep: bool = True
    ) -> Iterator[tuple[str, FileRecord | None]]:
        """What is at a path, and below it: files up to `most` bytes are kept."""
        waiting = [path]
        while waiting:
            one = waiting.pop()
            record = self._one(one, most)
            if record is None:
                continue
            yield one, record
            if record.is_dir and deep and one not in self.pinned:
                waiting += _listed(one)

    def _one(self, path: str, most: int) -> FileRecord | None:
        try:
            with parent_of("/", path, create=False) as (folder, name):
                info = os.lstat(name, dir_fd=folder)
                if self.known.get(path) is None and is_placeholder_entry(path, info):
                    return None  # of another session's command
                record = of_status(info)
                if record.is_link:
                    return record._replace(ref=os.readlink(name, dir_fd=folder))
                if not record.is_file:
                    return record
                room = most if self.known.get(path) is not None else self.room
                return self._keep(record, folder, name, most, room)
        except OSError:
            return None

    def _keep(self, record: FileRecord, folder: int, name: str, most: int, room: int) -> FileRecord:
        try:
            fd = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            return record._replace(why=reason(error))
        try:
            info = os.fstat(fd)
            record = of_status(info)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
                return record._replace(why="it has several names")
            if info.st_size > most:
                return record._replace(why=f"over {most:,} bytes")
            if info.st_size > room:
                self.room = 0
                return record._replace(why=f"with others over {ROOM:,} bytes")
            data = os.read(fd, info.st_size + 1)
            while len(data) < info.st_size and (piece := os.read(fd, info.st_size - len(data))):
                data += piece
        finally:
            os.close(fd)
        return record._replace(ref=self.keep(data), size=len(data))

    def keep(self, data: bytes) -> str:
        """Keep a content; where it is."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._places:
            self._places[digest] = self.packs.add(data, digest)
            self.room = max(0, self.room - len(data))
        return self._places[digest]

    def content(self, record: FileRecord | None) -> bytes | None:
        """The kept content of a plain file."""
        if record is None or not record.is_file or record.ref is None:
            return None
        return b"".join(self.packs.pieces(record.ref, record.size))

    # On disk

    def save(self) -> None:
        """Write the record, whole or not at all."""
        self.packs.flush()
        lines: dict[str, object] = {"workspace": self.workspace}
        lines |= {"names": sorted(self.names), "pinned": sorted(self.pinned), "known": self.known}
        folder = private_folder(self.folder)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(RECORD + ".new", dir_fd=folder)
            fd = private_file(folder, RECORD + ".new")
            try:
                write_all(fd, json.dumps(lines, separators=(",", ":")).encode())
            finally:
                os.close(fd)
            os.rename(RECORD + ".new", RECORD, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)

    @classmethod
    def load(cls, folder: str) -> WatchedNames:
        """The record that a session has left; OSError or ValueError where there is none."""
        with open(os.path.join(folder, RECORD), "rb") as file:
            lines = json.load(file)
        made = cls(folder, lines["workspace"])
        made.names, made.pinned = set(lines["names"]), set(lines["pinned"])
        for path, value in lines["known"].items():
            made._put(path, parse(value))
        return made


def of_status(info: os.stat_result) -> FileRecord:
    """The record of a status; a folder's times count here as well."""
    return FileRecord(
        info.st_mode,
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_ino,
        info.st_uid,
        info.st_gid,
    )


def is_being_written(path: str) -> bool:
    """Whether a program has this file open for writing: what it writes must not be lost."""
    try:
        with parent_of("/", path, create=False) as (folder, name):
            fd = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return False
    try:
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)  # one that does nothing, should it come
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _with_content(now: FileRecord, was: FileRecord | None) -> FileRecord:
    """The same content at another time: what was kept of it stays kept."""
    if was is None or not now.is_file or now.ref is not None:
        return now
    return now._replace(ref=was.ref)


def _listed(path: str) -> list[str]:
    try:
        with parent_of("/", path, create=False) as (folder, name):
            fd = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return []
    try:
        return [os.path.join(path, name) for name in sorted(os.listdir(fd))]
    except OSError:
        return []
    finally:
        os.close(fd)
