"""Apply a plan: write all of it, or nothing.

New content is first written beside its target and flushed; only when all of it is on disk are
names put in place, and every step can be undone. A file with several names, or one
reached through a symlink, keeps its inode: it is written in place, its old bytes at hand.

A process may be killed in the middle: where a record of the patch is kept (`patch/record.py`), the
next session takes back what was written.

What is not promised: a power cut in the middle of the renames can leave some files new and some
old, since no system renames several files at once.
"""

from __future__ import annotations

import errno
import os
import stat

from toolrest.patch.errors import ApplyError
from toolrest.patch.text.encoding import os_reason, why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from toolrest.patch.files.file_system import FileSystem
    from toolrest.patch.overlay import PendingChange
    from toolrest.patch.plan import Plan
    from toolrest.patch.record import PatchRecord

_CHANGED = "it changed on disk while the patch was being applied; read it again"
# A folder that takes no new names may still hold a file that can be written.
_NO_NEW_NAMES = (errno.EACCES, errno.EPERM, errno.EROFS)


def commit(plan: Plan, files: FileSystem, record: PatchRecord | None = None) -> list[str]:
    """Write a plan. ApplyError, with everything as it was before, when any part of it fails.

    Returns notes for the model, normally none: saved copies that are still there, and why.
    """
    work = _Commit(plan, files, record)
    try:
        try:
            work.run()
        except BaseException as error:
            stranded = work.roll_back()
            if stranded and isinstance(error, ApplyError):
                error.notes += stranded
            raise
        return work.finish()
    finally:
        if record is not None:
            record.end()


class _Undo:
    __slots__ = ("action", "arguments", "call")

    def __init__(self, action: str, call: Callable[..., Any], *arguments: Any) -> None:
        self.action = action
        self.call: Callable[..., Any] | None = call
        self.arguments = arguments


class _Commit:
    def __init__(self, plan: Plan, files: FileSystem, record: PatchRecord | None) -> None:
        self.plan = plan
        self.files = files
        self.record = record
        self.drafts = {change.path: _beside(change.path) for change in plan.changes}
        self.copies = {change.path: _beside(change.path) for change in plan.changes}
        self.undo: list[_Undo] = []
        self.backups: dict[str, PendingChange] = {}
        self.rewritten: set[tuple[int, int]] = set()
        self.touched: dict[str, None] = {}

    def run(self) -> None:
        folders = {folder.path for folder in self.plan.folders}
        writes = [change for change in self.plan.changes if change.content is not None]
        removals = [change for change in self.plan.changes if change.content is None]
        for change in self.plan.changes:
            self._check(change)
        self._record("begin", self.plan, self.drafts, self.copies)
        for change in self.plan.changes:
            if change.parting is not None:
                self._do(change.problem, self.files.check_writable, change.path)
                self._overwrite(change, change.parting)
        # Remove a file that a folder replaces first, all others at the very end.
        for change in removals:
            if change.path in folders:
                self._remove(change)
        self._make_folders()
        self._write(writes)
        for change in removals:
            if change.path not in folders:
                self._remove(change)

    def _make_folders(self) -> None:
        for folder in self.plan.folders:
            self._do(folder.problem, self.files.mkdir, folder.path)
            self._on_failure(f"remove {folder.path}", self.files.rmdir, folder.path)
            self.touched[_folder(folder.path)] = None

    def _write(self, writes: list[PendingChange]) -> None:
        staged = [(change, self._stage(change)) for change in writes]
        self._record_drafts(change for change, temporary in staged if temporary is not None)
        # In place first: only that can still run out of space.
        for change, temporary in staged:
            if temporary is None:
                self._overwrite(change, change.content or b"")
                self._make_executable(change, change.path)
        for change, temporary in staged:
            if temporary is not None:
                self._put(change, temporary)

    # The record

    def _record(self, step: str, *facts: Any) -> None:
        if self.record is not None:
            problem = f"Failed to record the patch in {self.record.folder}"
            self._do(problem, getattr(self.record, step), *facts)

    def _record_drafts(self, changes: Iterable[PendingChange]) -> None:
        """Write down by what the new files will be known when they have their names."""
        if self.record is not None:
            self._record("staged", {c.path: self._status(c, self.drafts[c.path]) for c in changes})

    def _status(self, change: PendingChange, path: str) -> os.stat_result:
        status: os.stat_result = self._do(change.problem, self.files.lstat, path)
        return status

    # Steps

    def _check(self, change: PendingChange) -> None:
        """Raise unless the disk still holds what the plan was made from."""
        before = change.before
        try:
            now = self.files.lstat(change.path)
        except (FileNotFoundError, NotADirectoryError):
            if before is None:
                return
            raise ApplyError(change.problem, [_CHANGED]) from None
        except OSError as error:
            raise ApplyError(change.problem, [why(error)]) from error
        if before is None or identity(now) != identity(before):
            raise ApplyError(change.problem, [_CHANGED])

    def _stage(self, change: PendingChange) -> _Undo | None:
        """Write the new content beside its target; None when it must be written in place."""
        content = change.content or b""
        if not change.fresh and change.before is not None:
            self._do(change.problem, self.files.check_writable, change.path)
            if change.through_link or change.before.st_nlink > 1:
                return None
        temporary = self.drafts[change.path]
        try:
            kept = self.files.create(temporary, content, change.like)
        except OSError as error:
            if not change.fresh and error.errno in _NO_NEW_NAMES:
                return None
            raise ApplyError(change.problem, [why(error)]) from error
        undo = self._on_failure("remove", self.files.unlink, temporary)
        if not kept and not change.fresh:
            # Only in place can a file keep an owner that we may not give.
            self._do(change.problem, self.files.unlink, temporary)
            self.undo.remove(undo)
            return None
        self._make_executable(change, temporary)
        return undo

    def _overwrite(self, change: PendingChange, content: bytes) -> None:
        old = self.plan.sources.get(change.path)
        if old is None:
            old = self._do(change.problem, self.files.read, change.path)
        self._check_again(change, change.path)
        if change.before is not None:
            self.rewritten.add((change.before.st_dev, change.before.st_ino))
        # Register the undo before writing: writing may stop half way.
        self._record("overwriting", change.path, self._status(change, change.path), old, content)
        self._on_failure(f"restore {change.path}", self.files.overwrite, change.path, old)
        self._do(change.problem, self.files.overwrite, change.path, content)
        self._record("overwritten", change.path, self._status(change, change.path))

    def _make_executable(self, change: PendingChange, path: str) -> None:
        """Set or clear the execute bits, setting them for everyone who may read."""
        if change.executable is None:
            return
        mode = stat.S_IMODE(self._do(change.problem, self.files.lstat, path).st_mode)
        wanted = mode | (mode & 0o444) >> 2 if change.executable else mode & ~0o111
        if wanted != mode:
            if path == change.path:
                self._on_failure(f"restore the mode of {path}", self.files.chmod, path, mode)
            self._do(change.problem, self.files.chmod, path, wanted)

    def _put(self, change: PendingChange, staged: _Undo) -> None:
        """Give the new content its name."""
        path, temporary = change.path, staged.arguments[0]
        self.touched[_folder(path)] = None
        if change.before is not None:
            self._set_aside(change)
            self._do(change.problem, self.files.rename, temporary, path)
        else:
            self._do(change.problem, self._name_new, temporary, path)
        staged.call = None

    def _set_aside(self, change: PendingChange) -> None:
        """Keep the old file under a second name; the first stays until it is replaced."""
        backup = self.copies[change.path]
        try:
            self.files.link(change.path, backup)
        except OSError:
            self._do(change.problem, self.files.rename, change.path, backup)
        self._keep(change, backup)

    def _keep(self, change: PendingChange, backup: str) -> None:
        self.backups[backup] = change
        self._on_failure(f"restore {change.path} from {backup}", self._restore, backup, change.path)
        self._check_again(change, backup)

    def _check_again(self, change: PendingChange, path: str) -> None:
        """Raise if the file was written since the first look: writing the others takes time."""
        now = self._do(change.problem, self.files.lstat, path)
        if self._is_other(change, now):
            raise ApplyError(change.problem, [_CHANGED])

    def _is_other(self, change: PendingChange, now: os.stat_result) -> bool:
        before = change.before
        if before is None or (now.st_dev, now.st_ino) in self.rewritten:
            return False  # new, or changed by this very patch
        # Not the inode: where layers lie over each other it may change with the first write.
        return (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns)

    def _restore(self, backup: str, path: str) -> None:
        self.files.rename(backup, path)
        # Between two names of one file, as long as it was not replaced, rename does nothing.
        try:
            self.files.unlink(backup)
        except FileNotFoundError:
            return

    def _name_new(self, temporary: str, path: str) -> None:
        try:
            self.files.link(temporary, path)  # unlike rename, never over something new there
        except FileExistsError:
            raise
        except OSError:
            self.files.rename(temporary, path)  # a file system without second names
            self._on_failure(f"remove {path}", self.files.unlink, path)
            return
        self._on_failure(f"remove {path}", self.files.unlink, path)
        self.files.unlink(temporary)

    def _remove(self, change: PendingChange) -> None:
        backup = self.copies[change.path]
        self.touched[_folder(change.path)] = None
        self._do(change.problem, self.files.rename, change.path, backup)
        self._keep(change, backup)

    def _do(self, problem: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except OSError as error:
            raise ApplyError(problem, [why(error)]) from error

    def _on_failure(self, action: str, call: Callable[..., Any], *arguments: Any) -> _Undo:
        undo = _Undo(action, call, *arguments)
        self.undo.append(undo)
        return undo

    # Endings

    def roll_back(self) -> list[str]:
        """Undo every step, the last first. Returns messages about what could not be undone."""
        stranded = []
        if self.record is not None:
            _twice(self.record.rolling_back)
        for undo in reversed(self.undo):
            if undo.call is None:
                continue
            error = _twice(undo.call, *undo.arguments)
            if error is not None:
                stranded.append(f"could not {undo.action}: {os_reason(error)}")
        return stranded

    def finish(self) -> list[str]:
        """Drop the saved copies and flush the folders. Nothing can fail any more."""
        notes = []
        if self.record is not None:
            _twice(self.record.done)
        for path, change in self.backups.items():
            if self._was_written(change, path):
                notes.append(
                    f"{change.path} was written by somebody else at the same time: "
                    f"their version is {path}"
                )
            elif _twice(self.files.unlink, path) is not None:
                notes.append(f"could not remove the saved copy {path}")
        for folder in self.touched:
            _twice(self.files.sync, folder)
        return notes

    def _was_written(self, change: PendingChange, backup: str) -> bool:
        """Whether who had the file open wrote into the old one after it was set aside."""
        try:
            return self._is_other(change, self.files.lstat(backup))
        except OSError:
            return False


def _twice(call: Callable[..., Any], *arguments: Any) -> OSError | None:
    """Try a call, and once more if it fails. Returns the last error, or None."""
    problem = None
    for _ in range(2):
        try:
            call(*arguments)
        except OSError as error:
            problem = error
        else:
            return None
    return problem


def _beside(path: str) -> str:
    return f"{_folder(path)}/.toolrest-{os.urandom(8).hex()}.tmp"


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def identity(status: os.stat_result) -> tuple[int, ...]:
    """The facts about a file that differ once it was written, replaced or given other rights."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode
