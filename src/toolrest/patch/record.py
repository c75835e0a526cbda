"""The record of a patch under way: what a kill cuts off is known, with the bytes before.

It lies in a private folder of the home, locked as long as the patch is being written, and is gone
with its end; so one whose lock is free was cut off, and `patch/recovery.py` takes it back. Whatever
is done to a name stands in it before it is done. It is written, but not flushed to disk: it is
for a kill, not for a power cut.

A record is a sequence of lines of JSON; behind one that has `sizes` lie as many bytes as these say.
A line that a kill cut off is of no concern: what it announces was not begun.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from hashlib import sha256

from toolrest.private_files import private_file, private_folder, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, BinaryIO, TypeAlias

    from toolrest.patch.plan import Plan

    Facts: TypeAlias = list[int]
    Line: TypeAlias = tuple[dict[str, Any], list[bytes]]

ENDING = ".patch"
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class PatchRecord:
    """The record of one patch, made in `folder` when the patch begins.

    In a home that cannot be written there is none. A full disk is an error, as for any write.
    """

    def __init__(self, folder: str, workspace: str) -> None:
        self.folder = folder
        self._workspace = workspace
        self._name = ""
        self._fd = -1

    def begin(self, plan: Plan, drafts: Mapping[str, str], copies: Mapping[str, str]) -> None:
        """Make and lock it; write down the names and contents, before anything is written.

        Each change has the name of its draft and of the copy that is kept of the old file.
        """
        try:
            self._open()
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            return
        folders = [folder.path for folder in plan.folders]
        self._note({"version": 1, "workspace": self._workspace, "folders": folders})
        for change in plan.changes:
            path, old = change.path, plan.sources.get(change.path)
            facts = {
                "change": path,
                "draft": drafts[path],
                "copy": copies[path],
                "was": None if change.before is None else facts_of(change.before),
                "becomes": None if change.content is None else fingerprint(change.content),
            }
            self._note(facts, *(() if old is None else (old,)))

    def staged(self, drafts: Mapping[str, os.stat_result]) -> None:
        """The drafts are complete: by what they will be known once they have their names."""
        self._note({"staged": {path: facts_of(status) for path, status in drafts.items()}})

    def overwriting(self, path: str, status: os.stat_result, old: bytes, new: bytes) -> None:
        """A file will be written in place."""
        self._note({"overwriting": path, "is": facts_of(status)}, old, new)

    def overwritten(self, path: str, status: os.stat_result) -> None:
        """A file has been written in place."""
        self._note({"overwritten": path, "is": facts_of(status)})

    def rolling_back(self) -> None:
        """All is being taken back: files may be found half way between new and old."""
        self._note({"back": True})

    def done(self) -> None:
        """All of it is written; only the copies are left to be removed."""
        self._note({"done": True})

    def end(self) -> None:
        """Remove it: the patch has been written, or taken back."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):  # all that it names is as it should be
            os.unlink(os.path.join(self.folder, self._name))
        os.close(self._fd)
        self._fd = -1

    def _open(self) -> None:
        folder = private_folder(self.folder)
        try:
            while self._fd < 0:
                self._make(folder)
        finally:
            os.close(folder)

    def _make(self, folder: int) -> None:
        self._name = os.urandom(16).hex() + ENDING
        fd = private_file(folder, self._name, append=True)
        # One that has no lock yet may be taken for a dead one's, and be removed.
        if lock(fd) and os.fstat(fd).st_nlink:
            self._fd = fd
        else:
            os.close(fd)

    def _note(self, facts: dict[str, Any], *contents: bytes) -> None:
        if self._fd >= 0:
            append(self._fd, facts, *contents)


def append(fd: int, facts: dict[str, Any], *contents: bytes) -> None:
    """Write a line, and the contents behind it."""
    if contents:
        facts["sizes"] = [len(content) for content in contents]
    write_all(fd, json.dumps(facts, separators=(",", ":")).encode() + b"\n")
    for content in contents:
        write_all(fd, content)


def lock(fd: int) -> bool:
    """Lock a record, unless the patch is being written."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lines(fd: int) -> list[Line]:
    """The whole lines of a record that is locked; one that was cut off is removed."""
    found: list[Line] = []
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        end = 0
        while (line := _line(file)) is not None:
            found.append(line)
            end = file.tell()
    os.ftruncate(fd, end)
    return found


def _line(file: BinaryIO) -> Line | None:
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    facts = json.loads(line)
    sizes = facts.get("sizes", [])
    contents = [file.read(size) for size in sizes]
    return (facts, contents) if [len(content) for content in contents] == sizes else None


def fingerprint(content: bytes) -> str:
    """The hash by which a content that was written is known."""
    return sha256(content).hexdigest()


def facts_of(status: os.stat_result) -> Facts:
    """The facts by which a file is known: where it is, its size and time of change, its mode."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode]
