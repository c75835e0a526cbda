"""The path policy of a session: decides which files may be read and written, and opens them.

Every in-process tool goes through it, and the sandbox is built from the same lists. A path is
judged by the object it really names, and that very object is opened: nothing that happens between
the check and the open can change the answer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct

from toolrest.errors import Rejected
from toolrest.policy.paths import kernel_files as pseudo
from toolrest.policy.paths.atomic_write import replace
from toolrest.policy.paths.links import HiddenFiles
from toolrest.policy.paths.locate import NoPlace, PinnedFile, locate, real_path
from toolrest.policy.paths.protected import UNDOTTED
from toolrest.policy.paths.rules import (
    MAX_FILE_SIZE,
    AnyPath,
    PathRules,
    SandboxMode,
    unreadable,
    unwritable,
)
from toolrest.private_files import is_placeholder_entry

EntryKind: TypeAlias = Literal["file", "dir", "symlink", "other"]
Entry: TypeAlias = tuple[str, EntryKind]
"""One name in a folder, and what it is; symlinks are not followed."""

_READ = os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK
_CHUNK = 1 << 20
_UNKNOWN_PLACE = "its real place cannot be found out, or keeps changing"

__all__ = [
    "MAX_FILE_SIZE",
    "AnyPath",
    "Entry",
    "EntryKind",
    "OpenFolder",
    "PathPolicy",
    "SandboxMode",
]


class PathPolicy(PathRules):
    """The path rules of a session, and the only door to its files.

    Refusals by policy raise Rejected; what the system itself refuses stays an OSError. Files
    over `max_file_size` bytes are refused. Only regular files are read: a FIFO, socket or device
    is refused without touching it.
    """

    @cached_property
    def _mounts(self) -> pseudo.DeviceTable:
        return pseudo.DeviceTable()

    @cached_property
    def _links(self) -> HiddenFiles:
        return HiddenFiles(self._hidden)

    def read_denied(self, path: AnyPath) -> str | None:
        """Why this path may not be read, naming the rule; None when it may."""
        try:
            self._judged(self.resolve(path)).close()
        except Rejected as error:
            return error.message
        except OSError:
            pass  # not there, or the system itself refuses: opening it will say so
        return None

    # Reading

    def open_read(self, path: AnyPath) -> int:
        """A descriptor to read this file. Rejected when policy refuses it, else OSError."""
        full = self.resolve(path)
        with self._judged(full) as found:
            if stat.S_ISDIR(found.stat.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full)
            return found.open(_READ)

    def open_dir(self, path: AnyPath) -> OpenFolder:
        """A folder to list. Rejected when policy refuses it, else OSError."""
        full = self.resolve(path)
        with self._judged(full) as found:
            if not stat.S_ISDIR(found.stat.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), full)
            return OpenFolder(self, found.open(_READ | os.O_DIRECTORY), found.real)

    def scan(self, path: AnyPath) -> list[Entry]:
        """The entries of a folder in no order, without the hidden ones."""
        with self.open_dir(path) as folder:
            return folder.entries()

    def folder_rule(self, real: str, device: int) -> str | None:
        """The rule that a folder runs into whose parent is readable and does not hide it."""
        rule = self.read_rule(real) if real.startswith(("/proc", "/sys", "/dev")) else None
        return rule or self._mounts.refused(real, device)

    def hidden_names(self, real: str) -> Callable[[str], bool] | None:
        """A test for the names in a real folder: True for hidden ones. None: none is."""
        return self._hidden.filter(real)

    def read_bytes(self, path: AnyPath, limit: int | None = None) -> bytes:
        """The content of a file, or its first `limit` bytes."""
        fd = self.open_read(path)
        try:
            return self.read_fd(fd, path, limit)
        finally:
            os.close(fd)

    def read_fd(self, fd: int, path: AnyPath, limit: int | None = None) -> bytes:
        """What is left to read of a descriptor from `open_read`; `path` is for messages."""
        most = self.max_file_size if limit is None else limit
        if limit is None:
            self.check_size(os.fstat(fd).st_size, path)
        pieces: list[bytes] = []
        held = 0
        while held < most and (piece := os.read(fd, min(_CHUNK, most - held))):
            pieces.append(piece)
            held += len(piece)
        if limit is None and held == most and os.read(fd, 1):
            self.check_size(held + 1, path)
        return b"".join(pieces)

    def check_size(self, size: int, path: AnyPath) -> None:
        """Rejected when a file of this size is over the limit."""
        if size > self.max_file_size:
            raise Rejected(
                f"{os.fspath(path)} is too large: {size:,} bytes, and "
                f"tool_security.max_file_access_size is {self.max_file_size:,}"
            )

    # Writing

    def write_bytes(self, path: AnyPath, data: bytes, *, parents: bool = False) -> None:
        """Replace a file's content at once, or create it, never outside the writable roots."""
        full = self.resolve(path)
        if len(data) > self.max_file_size:
            self.check_size(len(data), full)
        folder, name = self.open_parent(full, create=parents)
        try:
            replace(folder, name, data, full)
        finally:
            os.close(folder)

    def open_parent(self, path: AnyPath, *, create: bool = False) -> tuple[int, str]:
        """A descriptor of the folder in which this path may be written, and the name in it.

        What is done with the two stays in that folder, whatever is swapped meanwhile. With
        `create` missing folders are made.
        """
        full = self.resolve(path)
        reason = self.write_denied(full)
        if reason is not None:
            raise Rejected(reason)
        parent, name = os.path.split(real_path(full))
        if not name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full)
        missing: list[str] = []
        while True:
            try:
                found = locate(parent)
                break
            except FileNotFoundError:
                if not create or parent == "/":
                    raise
                parent, part = os.path.split(parent)
                missing.insert(0, part)
            except NoPlace:
                raise Rejected(unwritable(full, full, _UNKNOWN_PLACE)) from None
        with found:
            real = os.path.join(found.real, *missing, name)
            rule = self.write_rule(real)
            if rule is not None:
                raise Rejected(unwritable(full, real, rule))
            return _descend(found.folder(), missing), name

    # Judging

    def _judged(self, full: str) -> PinnedFile:
        """What `full` names, pinned, if it may be read."""
        try:
            found = locate(full)
        except NoPlace:
            raise Rejected(unreadable(full, full, _UNKNOWN_PLACE)) from None
        except OSError:
            # Whether something exists in a hidden place is hidden too.
            real = real_path(full)
            rule = self.read_rule(real) or self.step_rule(full)
            if rule is not None:
                raise Rejected(unreadable(full, real, rule)) from None
            raise
        try:
            rule = self.read_rule(found.real) or self._object_rule(found)
            if rule is None and found.real != full:
                rule = self.step_rule(full)
            if rule is not None:
                raise Rejected(unreadable(full, found.real, rule))
        except BaseException:
            found.close()
            raise
        return found

    def _object_rule(self, found: PinnedFile) -> str | None:
        status = found.stat
        rule = pseudo.refused_by_kind(status.st_mode)
        if rule is not None:
            return rule
        guarded = self._mounts.refused(found.real, status.st_dev)
        if guarded is not None:
            return f"{guarded}; no setting allows it"
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) and self._links.holds(status):
            return "it is a hard link of a hidden file"
        return None


class OpenFolder(Struct):
    """An open folder: what is in it is listed and entered without naming it again."""

    policy: PathPolicy
    fd: int
    real: str

    def entries(self) -> list[Entry]:
        """Names and kinds in no order, without the hidden ones and placeholders of sandboxes."""
        hidden = self.policy.hidden_names(self.real)
        with os.scandir(self.fd) as found:
            # Spelled out, not called: large folders are listed in half the time.
            listed: list[Entry] = [
                (
                    entry.name,
                    "symlink"
                    if entry.is_symlink()
                    else "file"
                    if entry.is_file()
                    else "dir"
                    if entry.is_dir()
                    else "other",
                )
                for entry in found
            ]
        may_be = [entry for entry in listed if entry[0][0] == "." or entry[0] in UNDOTTED]
        placed = set(filter(self._is_placeholder, may_be))
        if placed:
            listed = [entry for entry in listed if entry not in placed]
        if hidden is None:
            return listed
        return [entry for entry in listed if not hidden(entry[0])]

    def _is_placeholder(self, entry: Entry) -> bool:
        """Whether a sandbox has put this here, to keep a protected name from being made."""
        name = entry[0]
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            return is_placeholder_entry(f"/proc/self/fd/{self.fd}/{name}", status)
        except OSError:
            return False

    def enter(self, name: str) -> OpenFolder:
        """A folder that `entries` showed; a symlink put in its place is not followed."""
        real = os.path.join(self.real, name)
        flags = _READ | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        below = OpenFolder(self.policy, os.open(name, flags, dir_fd=self.fd), real)
        rule = self.policy.folder_rule(real, os.fstat(below.fd).st_dev)
        if rule is not None:
            below.close()
            raise Rejected(unreadable(real, real, rule))
        return below

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _descend(folder: int, names: Sequence[str]) -> int:
    """Make and enter folders below an open one; symlinks are not followed. Closes `folder`."""
    for name in names:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder
