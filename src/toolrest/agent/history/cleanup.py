"""Clean-up of the home: old sessions, spill files, logs, reports, requests for approval, tasks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from toolrest.agent.history.stored_sessions import stored_sessions
from toolrest.gate.audit.chain import HEAD_SUFFIX
from toolrest.private_files import is_locked, remove_tree

DAY = 86_400.0
_APPROVALS_KEPT = 8 * DAY
"""The least age of a request for approval that is removed: it has expired a week ago."""


class Removed(Struct):
    """The count and size of what was, or would be, removed of one kind."""

    kind: str
    count: int = 0
    bytes: int = 0
    problems: int = 0


class _Entry(Struct):
    path: str
    size: int
    changed: float


def collect(
    home: str,
    audit: str = "",
    *,
    max_age: float = 30 * DAY,
    max_size: int = 2_000_000_000,
    dry_run: bool = False,
) -> list[Removed]:
    """Remove what is older than `max_age` seconds, then the oldest until `max_size` is kept.

    Each kind has its own `max_size`. A session that is open is never touched. `audit` is the
    folder of the sessions' audit logs, which only age removes.
    """
    kinds = {
        "sessions": list(_sessions(home)),
        "spill": list(_folders(os.path.join(home, "spill"))),
        "run": list(_folders(os.path.join(home, "run"), only_sessions=True)),
        "log": list(_files(os.path.join(home, "log"))),
        "reports": list(_files(os.path.join(home, "reports"))),
        "batch": list(_batch_tasks(os.path.join(home, "batch"))),
    }
    found = [_trim(kind, entries, max_age, max_size, dry_run) for kind, entries in kinds.items()]
    # Room is no reason to forget what was allowed, or what is still asked.
    asked, logs = list(_requests(home)), list(_audit_logs(audit))
    found.append(_trim("approvals", asked, max(max_age, _APPROVALS_KEPT), sys.maxsize, dry_run))
    return [*found, _trim("audit", logs, max_age, sys.maxsize, dry_run)]


def _sessions(home: str) -> Iterator[_Entry]:
    for stored in stored_sessions(home):
        if (entry := _entry(stored.path)) is not None and not _is_open(stored.path):
            yield entry


def _folders(place: str, *, only_sessions: bool = False) -> Iterator[_Entry]:
    for name in _names(place):
        path = os.path.join(place, name)
        if not os.path.isdir(path) or os.path.islink(path):
            continue
        if only_sessions and len(name) < 32:
            continue  # shared by all sessions
        yield _Entry(path, _size(path), os.stat(path).st_mtime)


def _batch_tasks(place: str) -> Iterator[_Entry]:
    """What this machine keeps of tasks of batches without a result, or for undo."""
    for store in _folders(place):
        for task in _folders(store.path):
            sessions = [stored.path for stored in stored_sessions(os.path.join(task.path, "home"))]
            if any(map(_is_open, sessions)):
                continue
            task.changed = max(task.changed, *(os.stat(path).st_mtime for path in sessions), 0.0)
            yield task


def _size(path: str) -> int:
    entries = (_entry(os.path.join(top, file)) for top, _, names in os.walk(path) for file in names)
    try:
        return sum(entry.size for entry in entries if entry is not None)
    except RecursionError:
        return 0  # nested too deeply to measure


def _files(place: str) -> Iterator[_Entry]:
    for name in _names(place):
        entry = _entry(os.path.join(place, name))
        if entry is not None:
            yield entry


def _requests(home: str) -> Iterator[_Entry]:
    """Requests for approval and their answers; not the key that signs them."""
    for entry in _files(os.path.join(home, "approvals")):
        if entry.path.endswith((".json", ".answer", ".taken")):
            yield entry


def _audit_logs(place: str) -> Iterator[_Entry]:
    for entry in _files(place) if place else ():
        # Only what has a head file is a log of ours; the head goes with it.
        if os.path.isfile(entry.path + HEAD_SUFFIX) and not _is_open(entry.path):
            yield entry


def _names(place: str) -> list[str]:
    try:
        return os.listdir(place)
    except OSError:
        return []


def _entry(path: str) -> _Entry | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return _Entry(path, status.st_size, status.st_mtime)


def _is_open(path: str) -> bool:
    """Whether a process has the session open; True if that is not known."""
    try:
        return is_locked(path)
    except OSError:
        return True


def _trim(
    kind: str, entries: list[_Entry], max_age: float, max_size: int, dry_run: bool
) -> Removed:
    removed = Removed(kind)
    oldest_first = sorted(entries, key=lambda entry: entry.changed)
    kept = sum(entry.size for entry in entries)
    for entry in oldest_first:
        if time.time() - entry.changed < max_age and kept <= max_size:
            continue
        if dry_run or _remove(entry.path):
            kept -= entry.size
            removed.count += 1
            removed.bytes += entry.size
        else:
            removed.problems += 1
    return removed


def _remove(path: str) -> bool:
    try:
        if os.path.isdir(path):
            remove_tree(path)
        else:
            os.unlink(path)
            with suppress(FileNotFoundError):
                os.unlink(path + HEAD_SUFFIX)
    except OSError:
        return False
    return not os.path.lexists(path)
