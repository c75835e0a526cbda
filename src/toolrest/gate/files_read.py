"""The files that a session has read, as they were.

A call that declares writes is refused when a file is stale, that is, changed since this session
read it: the model's picture of the file is old, and the write could undo the change.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from toolrest.errors import RespondToModel
from toolrest.private_files import hash_file

if TYPE_CHECKING:
    from toolrest.gate.context import Context


class ReadStamp(Struct):
    """Size, time, inode and hash of a file when this session last read it."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str | None

    def differs(self, path: str) -> bool:
        """Whether the file looks changed."""
        try:
            now = os.stat(path)
        except OSError:
            return False  # gone: the tool reports that itself
        return (now.st_size, now.st_mtime_ns, now.st_ino) != (self.size, self.mtime_ns, self.inode)


class FilesRead:
    """The files that a session has read, by their canonical paths."""

    def __init__(self) -> None:
        self._stamps: dict[str, ReadStamp] = {}

    def of(self, path: str) -> ReadStamp | None:
        """The file as it was, if this session has read it."""
        return self._stamps.get(path)

    def note(self, path: str, stat: os.stat_result, sha256: str | None) -> None:
        """Remember what a file looks like."""
        self._stamps[path] = ReadStamp(stat.st_size, stat.st_mtime_ns, stat.st_ino, sha256)

    def note_written(self, hashes: Mapping[str, str | None]) -> None:
        """Record the session's own writes, which do not make a file stale."""
        for path, sha256 in hashes.items():
            if path in self._stamps:
                try:
                    self.note(path, os.stat(path), sha256)
                except OSError:
                    del self._stamps[path]

    async def refuse_stale(self, paths: Iterable[str], ctx: Context) -> None:
        """Raise RespondToModel when a file that a call writes has changed since it was read."""
        for path in paths if self._stamps else ():
            stamp = self._stamps.get(path)
            if stamp is None or not stamp.differs(path):
                continue
            if stamp.sha256 is not None and await ctx.in_thread(hash_file, path) == stamp.sha256:
                continue  # touched, or written anew with the same content
            raise RespondToModel(
                f"stale_file: {path} has changed since you last read it, and nothing was written. "
                "Read it again, then repeat the change if it is still right."
            )
