"""The list of sessions: a row each, remembered as long as the file stays as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from toolrest.agent.history.stored_sessions import Stored, stored_sessions, summary_of
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.web_ui.feed import line_events

_TAIL = 32 * 1024
_LAST = 120


class SessionList:
    """The sessions of one home."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._rows: dict[str, tuple[tuple[int, int], JSONObject]] = {}

    def rows(self, limit: int, search: str = "", before: str = "") -> list[JSONObject]:
        """The latest sessions, or those that have the searched words in title, folder or id.

        `before` is the id of the last row that is known already.
        """
        found: list[JSONObject] = []
        words = search.casefold().split()
        for row in self._after(before):
            text = f"{row['id']} {row['cwd']} {row['title']} {row['model']}".casefold()
            if all(word in text for word in words):
                found.append(row)
                if len(found) == limit:
                    break
        return found

    def path(self, session_id: str) -> str:
        """The file of a session; ConfigError when this home has none of that id."""
        for stored in stored_sessions(self._home):
            if stored.thread_id == session_id:
                return stored.path
        raise ConfigError(f"there is no session {session_id!r}")

    def _after(self, before: str) -> Iterator[JSONObject]:
        listed = stored_sessions(self._home)
        ids = [stored.thread_id for stored in listed]
        start = ids.index(before) + 1 if before in ids else 0
        locked = locked_files()
        for stored in listed[start:]:
            try:
                status = os.stat(stored.path, follow_symlinks=False)
            except OSError:
                continue
            row = self._row(stored, status)
            if row is not None:
                yield {**row, "open": status.st_ino in locked}

    def _row(self, stored: Stored, status: os.stat_result) -> JSONObject | None:
        stamp = (status.st_size, status.st_mtime_ns)
        known = self._rows.get(stored.path)
        if known is not None and known[0] == stamp:
            return known[1]
        summary = summary_of(stored)
        if summary is None:
            return None
        row = {**summary.to_json(), "model": "", "input": 0, "output": 0, "last": ""}
        del row["path"]
        row |= _latest(stored.path, status.st_size)
        self._rows[stored.path] = (stamp, row)
        return row


def _latest(path: str, size: int) -> JSONObject:
    """The latest model, tokens and message that the end of a file has; few lines are parsed."""
    found: JSONObject = {}
    missing = dict(_LATEST)
    for line in reversed(_tail(path, size)):
        if not any(sign in line for sign, _ in missing.values()):
            continue
        for event in line_events(line):
            if event["kind"] in missing:
                found |= missing.pop(event["kind"])[1](event)
        if not missing:
            break
    return found


_LATEST: dict[str, tuple[bytes, Callable[[JSONObject], JSONObject]]] = {
    "turn": (b"turn_context", lambda event: {"model": event["model"]}),
    "tokens": (b"token_count", lambda event: {k: event[k] for k in ("input", "output")}),
    "message": (b"assistant", lambda event: {"last": " ".join(event["text"].split())[:_LAST]}),
}
"""By kind of event: a word that its line has, and what a row takes from it."""


def _tail(path: str, size: int) -> list[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.pread(fd, _TAIL, max(0, size - _TAIL)).splitlines()
    finally:
        os.close(fd)


def is_open(path: str) -> bool:
    """Whether a process has the session open."""
    try:
        return os.stat(path, follow_symlinks=False).st_ino in locked_files()
    except OSError:
        return False


def locked_files() -> set[int]:
    """The inodes of all files that are locked, as a session's journal is while it is open.

    Trying the lock instead would for a moment keep a session from being opened.
    """
    try:
        with open("/proc/locks") as file:
            rows = [line.split() for line in file]
    except OSError:
        return set()
    inodes = (row[5].rpartition(":")[2] for row in rows if len(row) > 5 and row[1] == "FLOCK")
    return {int(inode) for inode in inodes if inode.isdecimal()}
