"""Plan of a patch, file by file, made before anything is written; and its verification.

A model's patch must pass `verify` before its approval is asked for: every operation is compared
with the unchanged disk. It is stricter than `plan`: no path may be named twice, and what is
deleted must be text. Both read the disk through one view, so each file is read and matched once.
"""

from __future__ import annotations

import errno
import stat

from toolrest.patch.apply import identity
from toolrest.patch.codex_grammar import AddFile, DeleteFile, Patch, UpdateFile
from toolrest.patch.errors import ApplyError, ParseError
from toolrest.patch.files.os_files import FileTooLarge, NotAFile, Refused
from toolrest.patch.files.paths import Target, resolve
from toolrest.patch.overlay import OverlayView
from toolrest.patch.text.encoding import Unreadable, decode, os_reason, why
from toolrest.patch.text.rebuild import updated

TYPE_CHECKING = False

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from toolrest.patch.codex_grammar import Operation
    from toolrest.patch.files.file_system import FileSystem
    from toolrest.patch.overlay import PendingChange, PendingFolder, Spot


NOTHING = "No files were modified."


class Record:
    """One operation of a patch: its path, and the texts before and after.

    `unread` is the size of a file that goes and is too large for its text to be read.
    """

    __slots__ = ("after", "before", "move_path", "path", "unread")

    def __init__(
        self,
        path: str,
        before: bytes | None,
        after: bytes | None,
        move_path: str | None = None,
        unread: int = 0,
    ) -> None:
        self.unread = unread
        self.path = path
        self.before = before
        self.after = after
        self.move_path = move_path


class Plan:
    """The net effect of a patch: folders to make, one change a path, and the names to report.

    `records` are the operations in the patch's order; `sources` holds the bytes of every file
    that was read from disk for it, `seen` the status of every path, `notes` are messages for a
    model.
    """

    __slots__ = (
        "added", "changes", "deleted", "folders", "modified", "notes", "records", "seen", "sources"
    )  # fmt: skip

    def __init__(self, planner: Planner) -> None:
        view = planner.view
        self.folders: list[PendingFolder] = list(view.folders.values())
        self.changes: list[PendingChange] = [
            change
            for change in view.changes.values()
            if change.content is not None or change.before is not None
        ]
        self.sources = view.read_from_disk
        self.seen = view.seen
        self.records = planner.records
        self.notes = planner.notes
        self.added = planner.added
        self.modified = planner.modified
        self.deleted = planner.deleted

    def holds(self, files: FileSystem) -> bool:
        """Whether the disk is still as the plan was made from it: contents, links and kinds."""
        try:
            return all(
                _is_same(before, _status(files, path)) for path, before in self.seen.items()
            ) and all(files.read(path) == data for path, data in self.sources.items())
        except OSError:
            return False


def _status(files: FileSystem, path: str) -> os.stat_result | None:
    try:
        return files.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_same(before: os.stat_result | None, now: os.stat_result | None) -> bool:
    if before is None or now is None:
        return before is now
    if stat.S_ISDIR(before.st_mode):
        return stat.S_ISDIR(now.st_mode)
    # A name more for the same file: writing this one would part them.
    return identity(before) == identity(now) and before.st_nlink == now.st_nlink


def plan(
    patch: Patch,
    files: FileSystem,
    cwd: str,
    legacy: str | None = None,
    view: OverlayView | None = None,
    verified: Sequence[Record] = (),
) -> Plan:
    """Plan a patch in Codex's language. ApplyError gives the reason when it cannot be applied.

    `view` is that of a verification, and `verified` its records.
    """
    planner = Planner(files, cwd, legacy, view)
    for number, operation in enumerate(patch.operations):
        known = verified[number] if verified else None
        if isinstance(operation, AddFile):
            planner.add(operation)
        elif isinstance(operation, DeleteFile):
            planner.delete(operation, known)
        else:
            planner.update(operation, known)
    return planner.finish()


class Planner:
    """Applies operations to an overlay of the disk, and keeps the names for the summary."""

    def __init__(
        self,
        files: FileSystem,
        cwd: str,
        legacy: str | None = None,
        view: OverlayView | None = None,
    ) -> None:
        self.view = view or OverlayView(files)
        self.cwd = cwd
        self.legacy = legacy
        self.records: list[Record] = []
        self.notes: list[str] = []
        self.added: list[str] = []
        self.modified: list[str] = []
        self.deleted: list[str] = []

    def finish(self) -> Plan:
        """The plan. ApplyError when the patch had no operations."""
        if not (self.added or self.modified or self.deleted):
            raise ApplyError(NOTHING)
        return Plan(self)

    def add(self, operation: AddFile) -> None:
        """Write a file with this text, replacing an existing one."""
        target = resolve(self.cwd, operation.path)
        content = operation.text.encode()
        self.write_new(target, content)
        self.records.append(Record(target.label, None, content))
        self.added.append(operation.path)

    def delete(self, operation: DeleteFile, verified: Record | None = None) -> None:
        """Remove a file, or a symlink to one; `verified` may have its content, for events."""
        target = resolve(self.cwd, operation.path)
        self.remove(target, f"Failed to delete file {target.label}")
        before = None if verified is None else verified.before
        unread = 0 if verified is None else verified.unread
        self.records.append(Record(target.label, before, None, unread=unread))
        self.deleted.append(operation.path)

    def update(self, operation: UpdateFile, verified: Record | None = None) -> None:
        """Change a file, and perhaps move it; `verified` may know its new content already."""
        target = resolve(self.cwd, operation.path)
        spot, data = self.read(target)
        if verified is not None and verified.after is not None and data == verified.before:
            content = verified.after
        else:
            content = updated_or_refused(data, operation, target, self.legacy)
        move_to = operation.move_to
        destination = None if move_to is None else resolve(self.cwd, move_to)
        self.replace(target, spot, data, content, destination)

    def replace(
        self,
        target: Target,
        spot: Spot,
        data: bytes,
        content: bytes,
        destination: Target | None = None,
    ) -> None:
        """Give a file that was read new content, at its path or at another."""
        if destination is None:
            self.view.write(spot, content, f"Failed to write file {target.label}")
            self.records.append(Record(target.label, data, content))
            self.modified.append(target.spelled)
        else:
            self.move(target, spot, destination, content)
            self.records.append(Record(target.label, data, content, destination.label))
            self.modified.append(destination.spelled)

    def move(self, source: Target, spot: Spot, target: Target, content: bytes) -> None:
        """Write the content at its new path and remove the old name."""
        landed = self.write_new(target, content, self.view.model(spot))
        if not self._same_file(spot, landed):
            self.remove(source, f"Failed to remove original {source.label}")

    def read(self, target: Target) -> tuple[Spot, bytes]:
        """Read a file that is to be updated. ApplyError has the documented message."""
        failed = f"Failed to read file to update {target.label}"
        return read_file(self.view, target, failed)

    def write_new(self, target: Target, content: bytes, like: str | None = None) -> Spot:
        """Write a file where its path leads, making missing folders."""
        problem = f"Failed to write file {target.label}"
        try:
            try:
                spot = self.view.spot(target.path)
            except FileNotFoundError:
                self._make_folders(target)
                spot = self.view.spot(target.path)
        except OSError as error:
            raise ApplyError(problem, [why(error)]) from error
        if spot.kind not in ("file", "missing"):
            raise ApplyError(problem, ["it is a folder" if spot.kind == "dir" else "not a file"])
        self.view.write(spot, content, problem, like)
        return spot

    def remove(self, target: Target, problem: str) -> None:
        """Remove a name; what it leads to must exist and be no folder."""
        try:
            spot = self.view.spot(target.path)
        except OSError as error:
            raise ApplyError(problem, [why(error)]) from error
        if spot.kind in ("missing", "dir"):
            number = errno.ENOENT if spot.kind == "missing" else errno.EISDIR
            raise ApplyError(problem, [os_reason(OSError(number, ""))])
        self.view.remove(spot.entry, problem)

    def _make_folders(self, target: Target) -> None:
        problem = f"Failed to create parent directories for {target.label}"
        path = made = ""
        for part in target.path.split("/")[1:-1]:
            path = f"{path}/{part}"
            if made:  # what lies below a new folder is new, too
                made = f"{made}/{part}"
                self.view.make_folder(made, problem)
                continue
            try:
                spot = self.view.spot(path)
            except OSError as error:
                raise ApplyError(problem, [why(error)]) from error
            if spot.kind == "missing" and spot.entry == spot.real:
                made = spot.real
                self.view.make_folder(made, problem)
            elif spot.kind != "dir":
                raise ApplyError(problem, [f"{path} is not a folder"])

    def _same_file(self, source: Spot, landed: Spot) -> bool:
        """Whether removing the source would remove what has just been written."""
        if source.entry == landed.real:
            return True
        one, other = self.view.on_disk(source.entry), self.view.on_disk(landed.real)
        if one is None or other is None or one.st_nlink > 1:
            return False
        # A name that differs in case only, on a file system that ignores case.
        return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def read_file(view: OverlayView, target: Target, failed: str) -> tuple[Spot, bytes]:
    """A regular file's spot and bytes; ApplyError `failed: reason` when there is none."""
    try:
        spot = view.spot(target.path)
        if spot.kind == "missing":
            raise FileNotFoundError(errno.ENOENT, "")
        if spot.kind != "file":
            raise NotAFile(errno.EINVAL, "")
        return spot, view.read(spot)
    except NotAFile:
        raise ApplyError(f"{failed}: path `{target.path}` is not a file") from None
    except FileTooLarge as error:
        limit = f"file is too large to read: limit is {error.limit} bytes"
        raise ApplyError(f"{failed}: {limit}") from None
    except OSError as error:
        notes = [error.reason] if isinstance(error, Refused) else []
        raise ApplyError(f"{failed}: {os_reason(error)}", notes) from error


def updated_or_refused(
    data: bytes, operation: UpdateFile, target: Target, legacy: str | None
) -> bytes:
    """A file's bytes after an update; bytes that are no text are an ApplyError."""
    try:
        return updated(data, operation.chunks, target.label, legacy)
    except Unreadable as error:
        message = f"Failed to read file to update {target.label}: {error}"
        raise ApplyError(message) from None


def verify(patch: Patch, view: OverlayView, cwd: str, legacy: str | None = None) -> list[Record]:
    """The record of each operation. PatchError is the reason why the first bad one fails."""
    seen: set[str] = set()
    records = []
    for operation in patch.operations:
        target = resolve(cwd, operation.path)
        if target.path in seen:
            raise ParseError(f"multiple operations target {target.label}")
        seen.add(target.path)
        records.append(_record(operation, target, view, cwd, legacy))
    return records


def _record(
    operation: Operation, target: Target, view: OverlayView, cwd: str, legacy: str | None
) -> Record:
    problem = f"Failed to write file {target.label}"
    if isinstance(operation, AddFile):
        content = operation.text.encode()
        view.check_size(target.path, content, problem)
        return Record(target.label, None, content)
    if isinstance(operation, DeleteFile):
        return _deletion(view, target, legacy)
    _, data = read_file(view, target, f"Failed to read file to update {target.label}")
    content = updated_or_refused(data, operation, target, legacy)
    view.check_size(target.path, content, problem)
    move_to = operation.move_to
    move_path = None if move_to is None else resolve(cwd, move_to).label
    return Record(target.label, data, content, move_path)


def _deletion(view: OverlayView, target: Target, legacy: str | None) -> Record:
    """The deletion of a text; one that is too large to be read is renamed away unseen."""
    failed = f"Failed to read {target.label}"
    try:
        _, data = read_file(view, target, failed)
    except ApplyError as error:
        if not isinstance(error.__context__, FileTooLarge):
            raise
        status = view.on_disk(view.spot(target.path).real)
        return Record(target.label, None, None, unread=0 if status is None else status.st_size)
    try:
        decode(data, legacy)
    except Unreadable as error:
        raise ApplyError(f"{failed}: {error}") from None
    return Record(target.label, data, None)
