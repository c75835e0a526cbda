"""Takes back patches that a kill cut off, by the records that they left.

What of ours opens the folder next does it, if it gets the record's lock. A file is put back only if
it still is exactly what the patch wrote: anything else is somebody's work by now, stays and is
named. The files are looked at, not the steps that were taken, so it does not matter where the kill
came, nor whether this was cut off too. Drafts are removed by the names in the record.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import Struct, field

from toolrest.errors import os_words
from toolrest.patch.files.os_files import OsFiles, quietly
from toolrest.patch.record import ENDING, append, facts_of, fingerprint, lines, lock
from toolrest.policy.paths.names import inside
from toolrest.private_files import own_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolrest.patch.record import Facts

_PIECE = 1 << 12
_LATER = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM)


class _Change(Struct):
    """One name that the patch changes, and what stands beside it meanwhile."""

    path: str
    draft: str
    copy: str
    was: Facts | None
    becomes: str | None
    old: bytes | None = None
    staged: Facts | None = None


class _InPlace(Struct):
    """One file that the patch writes in place; `after` is None where that was cut off."""

    path: str
    before: Facts
    old: bytes
    new: bytes
    after: Facts | None = None


_T = TypeVar("_T", _Change, _InPlace)


class _State(Struct):
    """What a record says."""

    workspace: str = ""
    folders: list[str] = field(default_factory=list)
    changes: dict[str, _Change] = field(default_factory=dict)
    in_place: dict[str, _InPlace] = field(default_factory=dict)
    is_done: bool = False
    is_back: bool = False


def take_back(records: str, workspace: str | None = None) -> list[str]:
    """Take back what was cut off in this folder, above or below it; without one, everywhere.

    Returns messages for the person, normally none.
    """
    try:
        names = [name for name in os.listdir(records) if name.endswith(ENDING)]
    except OSError:
        return []
    return [text for name in names for text in _one(records, name, workspace)]


def _one(records: str, name: str, workspace: str | None) -> Iterator[str]:
    try:
        with _opened(records, name) as fd:
            if not lock(fd):
                return
            state = _read(fd)
            if not _concerns(state, workspace):
                return
            if not (state.is_done or state.is_back):
                append(fd, {"back": True})
            with OsFiles() as files:
                work = _Recovery(state, files)
                work.run()
            if not work.later:
                os.unlink(os.path.join(records, name))
    except FileNotFoundError:
        return  # its patch has ended
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        yield f"cannot read {os.path.join(records, name)}: {error}"
    else:
        yield from work.report()


@contextlib.contextmanager
def _opened(records: str, name: str) -> Iterator[int]:
    folder = os.open(records, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.lstat(name, dir_fd=folder)  # opening would make it
        fd = own_file(folder, name, append=True)
    finally:
        os.close(folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _concerns(state: _State, workspace: str | None) -> bool:
    """One that says nothing yet concerns nobody, or is an empty one that can go."""
    theirs = state.workspace
    if theirs and not os.path.isdir(theirs):
        return False  # a disk that is not mounted
    return not (theirs and workspace) or inside(theirs, workspace) or inside(workspace, theirs)


def _read(fd: int) -> _State:
    state = _State()
    for facts, contents in lines(fd):
        if "workspace" in facts:
            state.workspace, state.folders = facts["workspace"], facts["folders"]
        elif "change" in facts:
            path, old = facts["change"], contents[0] if contents else None
            state.changes[path] = _Change(
                path, facts["draft"], facts["copy"], facts["was"], facts["becomes"], old
            )
        elif "staged" in facts:
            for path, known in facts["staged"].items():
                state.changes[path].staged = known
        elif "overwriting" in facts:
            path = facts["overwriting"]
            state.in_place[path] = _InPlace(path, facts["is"], contents[0], contents[1])
        elif "overwritten" in facts:
            path = facts["overwritten"]
            written, change = state.in_place[path], state.changes[path]
            written.after = change.was = facts["is"]
            change.old = written.new  # of which a copy is kept, if its name goes
        state.is_done = state.is_done or "done" in facts
        state.is_back = state.is_back or "back" in facts
    return state


class _Recovery:
    def __init__(self, state: _State, files: OsFiles) -> None:
        self.state = state
        self.files = files
        self.restored: dict[str, None] = {}
        self.left: dict[str, str] = {}
        """What stays as it is, and why."""
        self.later = False
        """Something could not be written now, and may be another time."""

    def run(self) -> None:
        if not self.state.is_done:
            self._take_back()
        for change in self.state.changes.values():
            self._try(self._drop_copy, change)

    def report(self) -> Iterator[str]:
        """Messages for the person."""
        if not self.restored and not self.left:
            return
        count = len(self.restored)
        found = f"{count} file{'' if count == 1 else 's'}" if count else "nothing"
        yield f"{self.state.workspace}: took back {found} of a patch that a crash had cut off"
        for path, why in self.left.items():
            yield f"{path} stays as it is: {why}"

    def _take_back(self) -> None:
        """Everything in the reverse of its order."""
        changes = list(reversed(self.state.changes.values()))
        for change in changes:
            if change.becomes is not None:
                self._try(self._unwrite, change)
        for change in changes:
            quietly(self.files.unlink, change.draft)
        for folder in reversed(self.state.folders):
            quietly(self.files.rmdir, folder)
        for change in changes:
            if change.becomes is None:
                self._try(self._unremove, change)
        for written in reversed(self.state.in_place.values()):
            self._try(self._unoverwrite, written)

    def _try(self, step: Callable[[_T], str | None], change: _T) -> None:
        try:
            why = step(change)
        except OSError as error:
            why = os_words(error)
            self.later = self.later or error.errno in _LATER
        if why:
            self.left.setdefault(change.path, why)

    # Steps: each returns why the file stays as it is, if it does

    def _unwrite(self, change: _Change) -> str | None:
        """Take the new content's name away, or give it to the old one."""
        now = self._status(change.path)
        if change.staged is None:
            return None
        if now is None and change.was is not None and self._status(change.draft) is not None:
            return self._restore(change)  # without second names, it is gone for a moment
        if now is None or not self._is_written(change, now):
            return self._stays(change, now)
        if change.was is not None:
            return self._restore(change)
        self.files.unlink(change.path)
        self.restored[change.path] = None
        return None

    def _unremove(self, change: _Change) -> str | None:
        """Give a removed file its name again, if that is free."""
        now = self._status(change.path)
        return self._restore(change) if now is None else self._stays(change, now)

    def _stays(self, change: _Change, now: os.stat_result | None) -> str | None:
        """Why the patch's name stays as it is; nothing for the old file, or where none was."""
        if change.path in self.state.in_place or not self._was_reached(change):
            return None  # `_unoverwrite` judges the former
        if _is_untouched(change, now):
            return None
        is_old = change.old is not None and self._content(change.path, now) == change.old
        return None if is_old else _CHANGED

    def _was_reached(self, change: _Change) -> bool:
        """Whether the patch came so far as to change this name."""
        if change.becomes is None:
            return self._status(change.copy) is not None
        return self._status(change.draft) is None

    def _unoverwrite(self, written: _InPlace) -> str | None:
        """Give a file its old bytes, if what it has are the patch's, or half of them."""
        now = self._status(written.path)
        content = self._content(written.path, now)
        if now is None or content is None or facts_of(now)[:2] != written.before[:2]:
            return _CHANGED
        if content != written.old:
            if not self._is_patch(written, now, content):
                return _CHANGED
            self.files.overwrite(written.path, written.old)
            self.restored[written.path] = None
        elif not self.state.is_back:
            return None
        if now.st_mode != written.before[4]:
            self.files.chmod(written.path, stat.S_IMODE(written.before[4]))
        return None

    def _restore(self, change: _Change) -> str | None:
        """Give the old file its name again: the copy, or where that is gone one of its bytes."""
        if self._is_copy(change):
            source = change.copy
        elif change.old is None or change.was is None:
            return "its old content is lost"
        else:
            like = change.path if self._status(change.path) else None
            quietly(self.files.unlink, change.draft)
            self.files.create(change.draft, change.old, like)
            self.files.chmod(change.draft, stat.S_IMODE(change.was[4]))
            source = change.draft
        self.files.rename(source, change.path)
        self.restored[change.path] = None
        return None

    def _drop_copy(self, change: _Change) -> str | None:
        if self._is_copy(change):
            self.files.unlink(change.copy)
        elif self._status(change.copy) is not None:
            return f"{change.copy} was written by another program, and is its version"
        return None

    # Looking

    def _is_copy(self, change: _Change) -> bool:
        """Whether the copy is there, and still the old file."""
        now = self._status(change.copy)
        if now is None or not _is_untouched(change, now):
            return False
        return change.old is None or self.files.read(change.copy) == change.old

    def _is_written(self, change: _Change, now: os.stat_result) -> bool:
        """Whether this is the new file, as the patch made it."""
        if change.staged is None or facts_of(now)[:4] != change.staged[:4]:
            return False
        content = self._content(change.path, now)
        return content is not None and fingerprint(content) == change.becomes

    def _is_patch(self, written: _InPlace, now: os.stat_result, content: bytes) -> bool:
        """Whether these bytes are what the patch wrote in place, all or half of it."""
        if written.after is not None and facts_of(now)[:4] == written.after[:4]:
            return content == written.new
        is_torn = self.state.is_back or written.after is None
        return is_torn and _is_mixed(content, written.old, written.new)

    def _content(self, path: str, now: os.stat_result | None) -> bytes | None:
        is_file = now is not None and stat.S_ISREG(now.st_mode)
        return self.files.read(path) if is_file else None

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return self.files.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


_CHANGED = "it was changed since"


def _is_untouched(change: _Change, now: os.stat_result | None) -> bool:
    """Whether this is the old file: not by its inode, which some file systems change."""
    if now is None or change.was is None:
        return now is None and change.was is None
    return stat.S_ISREG(now.st_mode) and facts_of(now)[2:4] == change.was[2:4]


def _is_mixed(content: bytes, old: bytes, new: bytes) -> bool:
    """Whether every byte is the old one or the new one, as a write leaves it that was cut off."""
    lengths = sorted((len(old), len(new)))
    if not lengths[0] <= len(content) <= lengths[1]:
        return False
    for at in range(0, len(content), _PIECE):
        piece = content[at : at + _PIECE]
        one, other = old[at : at + _PIECE], new[at : at + _PIECE]
        if piece not in (one, other) and any(
            byte not in one[i : i + 1] and byte not in other[i : i + 1]
            for i, byte in enumerate(piece)
        ):
            return False
    return True
