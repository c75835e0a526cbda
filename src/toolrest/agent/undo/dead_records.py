"""Records of watched names that a dead session has left open.

Started by the helper of a session that was killed, this program compares and puts back at once.
Where not even the helper lived on, days of the person's own work may lie between: a later session
only names what differs, and `toolrest undo` puts it back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import convert, to_builtins

import toolrest.events  # before the events of single tools
from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.agent.undo.put_back import event_of, put_back, tops
from toolrest.agent.undo.watched import LIVING, LOCK, WatchedNames
from toolrest.private_files import own_file, private_folder, remove_tree, write_all

if TYPE_CHECKING:
    from toolrest.gate.bus import Bus

_REPORT = "report.json"
_PATIENCE = 10.0
_BY = "a command of a session that was killed"


def main(folder: str) -> None:
    """Put back what the commands of a dead session have changed, and leave a report of it."""
    with _locked(folder, _PATIENCE) as is_ours:
        if not is_ours or not os.path.exists(os.path.join(folder, LIVING)):
            return
        watched = WatchedNames.load(folder)
        home = os.path.dirname(os.path.dirname(folder))
        result = put_back(watched, home, lambda path: False)
        if result.done and watched.workspace:
            Checkpoints(home, watched.workspace).note_put_back(
                result.done, watched.packs, _session(folder)
            )
        changed = [
            event_of(path, pair, _BY, watched.workspace) for path, pair in tops(result.done).items()
        ]
        changed += [
            event_of(path, None, _BY, watched.workspace, why) for path, why in result.failed.items()
        ]
        _write_report(folder, to_builtins(changed))
        os.unlink(os.path.join(folder, LIVING))


def tell(home: str, workspace: str, bus: Bus, *, undo: bool) -> None:
    """Say what dead sessions of this workspace have left, once."""
    place = os.path.join(home, "watched")
    with contextlib.suppress(OSError):
        for session in sorted(os.listdir(place)):
            with contextlib.suppress(OSError, ValueError, KeyError):
                _tell_of(os.path.join(place, session), home, workspace, bus, undo)


def _tell_of(folder: str, home: str, workspace: str, bus: Bus, undo: bool) -> None:
    if not os.path.isdir(folder):
        return
    with _locked(folder, 0) as is_ours:
        if not is_ours:
            return
        watched = WatchedNames.load(folder)
        if watched.workspace != workspace:
            return
        for row in _report(folder):
            bus.emit(convert(row, toolrest.events.PutBack))
        if os.path.exists(os.path.join(folder, LIVING)):
            _name_differences(watched, home, bus, undo)
        remove_tree(folder)


def _name_differences(watched: WatchedNames, home: str, bus: Bus, undo: bool) -> None:
    found = watched.changes(watched.differing())
    if not found:
        return
    shown = ", ".join(os.path.relpath(path, watched.workspace) for path in tops(found))
    way = ""
    if undo:
        label = "changed before a session was killed, or since"
        number = Checkpoints(home, watched.workspace).note_put_back(
            found, watched.packs, _session(watched.folder), label
        )
        way = f" Yours? Leave it. If not: `toolrest undo {number}` puts it back."
    text = f"An earlier session was killed while a command ran. Changed since: {shown}.{way}"
    bus.emit(toolrest.events.Warning(message=text))


def _session(folder: str) -> str:
    return os.path.basename(folder).rpartition("-")[0]


def _report(folder: str) -> list[object]:
    try:
        with open(os.path.join(folder, _REPORT), "rb") as file:
            found: list[object] = json.load(file)
            return found
    except (OSError, ValueError):  # its writer was killed
        return []


def _write_report(folder: str, rows: object) -> None:
    place = private_folder(folder)
    try:
        fd = own_file(place, _REPORT)
        try:
            write_all(fd, json.dumps(rows).encode())
        finally:
            os.close(fd)
    finally:
        os.close(place)


@contextlib.contextmanager
def _locked(folder: str, seconds: float) -> Iterator[bool]:
    """Hold the record's lock; False where its session lives."""
    place = private_folder(folder)
    try:
        fd = own_file(place, LOCK)
    finally:
        os.close(place)
    try:
        yield _take(fd, seconds)
    finally:
        os.close(fd)


def _take(fd: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        else:
            return True


if __name__ == "__main__":
    main(sys.argv[1])
