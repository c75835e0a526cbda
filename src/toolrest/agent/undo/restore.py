"""Restoring paths through folder descriptors: no symlink is followed, nothing else is touched.

A file is written beside its place and then renamed into it, so that a process that dies in the
middle leaves the old content or the new one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator

from toolrest.agent.undo.packs import Packs
from toolrest.agent.undo.plan import Item, Kept
from toolrest.agent.undo.records import FileRecord, UndoError
from toolrest.private_files import reason, write_all

_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def restore(root: str, items: list[Item], packs: Packs) -> tuple[list[Item], list[Kept]]:
    """Carry a plan out: what was put back, and what was not and why."""
    failed: dict[str, str] = {}
    for item in _in_order(items):
        try:
            with parent_of(root, item.path, create=item.was is not None) as (folder, name):
                _put_back(folder, name, item, packs)
        except FileNotFoundError:
            if item.was is not None:  # else it is gone already
                failed[item.path] = "its folder is gone"
        except OSError as error:
            failed[item.path] = reason(error)
        except UndoError as error:
            failed[item.path] = str(error)
    done = [item for item in items if item.path not in failed]
    return done, [Kept(path, why) for path, why in failed.items()]


def _in_order(items: list[Item]) -> list[Item]:
    """First what must go, the deepest first; then folders, the outermost first; then the rest."""
    removed = [item for item in items if item.now is not None and not _same_kind(item)]
    folders = [item for item in items if item.was is not None and item.was.is_dir]
    files = [item for item in items if item.was is not None and not item.was.is_dir]
    away = [Item(item.path, item.now, None) for item in removed]
    # A folder's own mode comes last: it may forbid what has to be written into it.
    modes = [item for item in folders if item.was is not None and not item.was.mode & stat.S_IWUSR]
    return [
        *sorted(away, key=lambda item: item.path.count("/"), reverse=True),
        *sorted((_writable(item) for item in folders), key=lambda item: item.path.count("/")),
        *files,
        *modes,
    ]


def _same_kind(item: Item) -> bool:
    if item.now is None or item.was is None:
        return False
    return item.now.is_dir == item.was.is_dir


def _writable(item: Item) -> Item:
    assert item.was is not None  # noqa: S101 - only folders that come back are asked for
    return item._replace(was=item.was._replace(mode=item.was.mode | stat.S_IRWXU))


@contextlib.contextmanager
def parent_of(root: str, path: str, *, create: bool) -> Iterator[tuple[int, str]]:
    """The folder that holds a path, reached without following a link, and the name in it."""
    *steps, name = path.strip("/").split("/")
    folder = os.open("/" if path.startswith("/") else root, _STEP)
    try:
        for step in steps:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o755, dir_fd=folder)
            below = os.open(step, _STEP, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, name
    finally:
        os.close(folder)


def _put_back(folder: int, name: str, item: Item, packs: Packs) -> None:
    was = item.was
    if was is None:
        _remove(folder, name, item.now)
    elif was.is_dir:
        _folder(folder, name, was)
    else:
        _check_untouched(folder, name, item.now)
        _replace(folder, name, was, packs)


def _check_untouched(folder: int, name: str, now: FileRecord | None) -> None:
    """What changed a moment ago is not in the checkpoint: it must not be lost."""
    try:
        found = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode) and (now is None or not now.is_dir):
        raise UndoError("a folder has taken its place")
    if now is None or (now.mtime, now.size, now.inode) != (
        found.st_mtime_ns,
        found.st_size,
        found.st_ino,
    ):
        raise UndoError("it was changed while undoing")


def _remove(folder: int, name: str, now: FileRecord | None) -> None:
    if now is not None and now.is_dir:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            raise UndoError(f"the folder stays: {reason(error)}") from None
        return
    _check_untouched(folder, name, now)
    os.unlink(name, dir_fd=folder)


def _folder(folder: int, name: str, was: FileRecord) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        _own(fd, was)
        os.fchmod(fd, stat.S_IMODE(was.mode))
    finally:
        os.close(fd)


def _replace(folder: int, name: str, was: FileRecord, packs: Packs) -> None:
    beside = f".toolrest-undo-{secrets.token_hex(6)}"
    try:
        if was.is_link:
            os.symlink(was.ref or "", beside, dir_fd=folder)
        else:
            _write(folder, beside, was, packs)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise


def _write(folder: int, name: str, was: FileRecord, packs: Packs) -> None:
    fd = os.open(name, _NEW, 0o600, dir_fd=folder)
    try:
        for piece in packs.pieces(was.ref or "", was.size):
            write_all(fd, piece)
        _own(fd, was)
        os.fchmod(fd, stat.S_IMODE(was.mode))
        os.fsync(fd)
    finally:
        os.close(fd)


def _own(fd: int, was: FileRecord) -> None:
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) != (was.uid, was.gid):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, was.uid, was.gid)
