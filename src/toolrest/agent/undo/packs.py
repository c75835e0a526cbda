"""Packs: contents of files, appended to a few large private files, found by hash and place.

Nothing is ever written over: a process that dies in the middle leaves bytes that have no entry.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from toolrest.agent.undo.records import CheckpointError, UndoError
from toolrest.private_files import private_folder, reason, write_all

_CHUNK = 4 << 20
_FULL = 256 << 20
_CREATE = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Packs:
    """The contents of one workspace's checkpoints. Write only under the workspace's lock."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, "packs")
        self._parent = folder
        self._current = -1
        self._fd = -1
        self._end = 0
        self._least = 1
        self._waiting = bytearray()

    def add(self, data: bytes, digest: str) -> str:
        """Keep a content; where it is."""
        self._ready()
        ref = f"{digest}.{self._current}.{self._end}"
        self._waiting += data
        self._end += len(data)
        if len(self._waiting) >= _CHUNK:
            self._write()
        return ref

    def add_file(self, fd: int, size: int) -> tuple[str, int]:
        """Keep what a descriptor holds, up to `size` bytes, however large; place and length."""
        self._ready()
        self._write()
        start, digest, left = self._end, hashlib.sha256(), size
        while left and (piece := os.read(fd, min(_CHUNK, left))):
            digest.update(piece)
            self._put(piece)
            left -= len(piece)
        self._end += size - left
        return f"{digest.hexdigest()}.{self._current}.{start}", size - left

    def add_pieces(self, pieces: Iterator[bytes], digest: str) -> str:
        """Keep a content that comes in pieces."""
        self._ready()
        ref = f"{digest}.{self._current}.{self._end}"
        for piece in pieces:
            self._waiting += piece
            self._end += len(piece)
            if len(self._waiting) >= _CHUNK:
                self._write()
        return ref

    def start_anew(self, number: int) -> None:
        """Write to packs from this number on, leaving those before alone."""
        self._least = number

    def flush(self) -> None:
        """Hand everything to the system and let go of the file."""
        if self._fd >= 0:
            try:
                self._write()
            finally:
                os.close(self._fd)
                self._fd = -1

    def drop(self) -> None:
        """Forget what was not written; for a save that failed."""
        self._waiting.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self) -> None:
        if self._waiting:
            self._put(bytes(self._waiting))
            self._waiting.clear()

    def _put(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError as error:
            raise CheckpointError(f"{self.folder}: {reason(error)}") from error

    def _ready(self) -> None:
        if self._fd >= 0 and self._end < _FULL:
            return
        self.flush()
        try:
            self._open()
        except OSError as error:
            raise CheckpointError(f"{self.folder}: {reason(error)}") from error

    def _open(self) -> None:
        folder = private_folder(self._parent, "packs")
        try:
            numbers = [int(name) for name in os.listdir(folder) if name.isdecimal()]
            number = max([self._least, *numbers])
            if number in numbers and os.stat(str(number), dir_fd=folder).st_size >= _FULL:
                number += 1
            self._fd = os.open(str(number), _CREATE, 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        self._current = number
        self._end = os.fstat(self._fd).st_size

    def pieces(self, ref: str, size: int) -> Iterator[bytes]:
        """A kept content; UndoError when it is not what was kept."""
        digest, pack, offset = ref.split(".")
        found = hashlib.sha256()
        at, end = int(offset), int(offset) + size
        try:
            fd = os.open(os.path.join(self.folder, pack), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise UndoError(f"the kept content is gone from {self.folder}") from None
        try:
            while at < end and (piece := os.pread(fd, min(_CHUNK, end - at), at)):
                found.update(piece)
                at += len(piece)
                yield piece
        finally:
            os.close(fd)
        if found.hexdigest() != digest:
            raise UndoError(f"the kept content in {self.folder} is damaged")
