"""The list of sessions: a row each, remembered as long as the file stays as it is."""

from __future__ import annotations

import itertools
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeAlias

from toolrest.agent.history.journal import FOLDER
from toolrest.agent.history.rollout import parsed
from toolrest.agent.history.stored_sessions import (
    Stored,
    Summary,
    head_of,
    latest_first,
    stored_at,
)
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.web_ui.feed import line_events
from toolrest.web_ui.names import SessionNames
from toolrest.wire.model import Usage
from toolrest.wire.prices import Price, cost_of

_END = 32 * 1024
_LAST = 120
_LONGEST_LINE = 16 << 20
"""Bytes of a line among a session's first ones; it may have pictures."""
_JUST_NOW = 1_000_000_000
"""Nanoseconds in which a folder may change again without another time of change."""

_PAGES_SECONDS = 2.0
"""How long further pages of a list take over which sessions are open: to ask takes 10 ms."""

Prices: TypeAlias = Callable[[str, str | None], Price | None]
"""The price of a model by its name and the name of its provider."""


class SessionList:
    """The sessions of one home."""

    def __init__(self, home: str, prices: Prices | None = None) -> None:
        self._files = SessionFiles(os.path.join(home, FOLDER))
        self._prices = prices
        self.names = SessionNames(home)
        self._rows: dict[str, tuple[tuple[int, int], JSONObject]] = {}
        self._locked: set[int] = set()
        self._looked = float("-inf")

    def rows(
        self, limit: int, search: str = "", before: str = "", state: str = ""
    ) -> list[JSONObject]:
        """The latest sessions, or those that have the searched words in title, folder or id.

        `before` is the id of the last row that is known already; `state` is `running` or `ended`.
        """
        found: list[JSONObject] = []
        words = search.casefold().split()
        names = self.names.all()
        for read in self._after(before):
            name = names.get(read["id"])
            row = read if name is None else {**read, "title": name}
            if state and row["open"] != (state == "running"):
                continue
            text = f"{row['id']} {row['cwd']} {row['title']} {row['model']}".casefold()
            if all(word in text for word in words):
                found.append(row)
                if len(found) == limit:
                    break
        return found

    def path(self, session_id: str) -> str:
        """The file of a session; ConfigError when this home has none of that id."""
        for stored in self._files.listed():
            if stored.thread_id == session_id and _own(stored.path) is not None:
                return stored.path
        raise ConfigError(f"there is no session {session_id!r}")

    def _after(self, before: str) -> Iterator[JSONObject]:
        listed = self._files.listed()
        ids = [stored.thread_id for stored in listed] if before else []
        start = ids.index(before) + 1 if before in ids else 0
        if not before or time.monotonic() - self._looked > _PAGES_SECONDS:
            self._locked, self._looked = locked_files(), time.monotonic()
        locked = self._locked
        for stored in itertools.islice(listed, start, None):
            status = _own(stored.path)
            row = None if status is None else self._row(stored, status)
            if status is not None and row is not None:
                yield {**row, "open": status.st_ino in locked}

    def _row(self, stored: Stored, status: os.stat_result) -> JSONObject | None:
        stamp = (status.st_size, status.st_mtime_ns)
        known = self._rows.get(stored.path)
        if known is not None and known[0] == stamp:
            return known[1]
        row = _read_row(stored)
        if row is not None:
            provider = row.pop("provider")
            price = self._prices(row["model"], provider) if self._prices else None
            row["cost"] = cost_of(row.pop("usage"), price)
            self._rows[stored.path] = (stamp, row)
        return row


class SessionFiles:
    """The files of sessions; only folders that have changed are read again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, tuple[int, list[str], list[Stored]]] = {}
        self._listed: list[Stored] = []

    def listed(self) -> list[Stored]:
        """Every session, the latest first."""
        seen: dict[str, tuple[int, list[str], list[Stored]]] = {}
        todo = [self._folder]
        while todo:
            folder = todo.pop()
            try:
                entry = self._looked_at(folder)
            except OSError:
                continue
            seen[folder] = entry
            todo += entry[1]
        if seen != self._known or any(entry[0] < 0 for entry in seen.values()):
            found = itertools.chain.from_iterable(entry[2] for entry in seen.values())
            self._known, self._listed = seen, latest_first(found)
        return self._listed

    def _looked_at(self, folder: str) -> tuple[int, list[str], list[Stored]]:
        """A folder's time, folders and sessions; the time is -1 where it may not tell a change."""
        changed = os.stat(folder, follow_symlinks=False).st_mtime_ns
        known = self._known.get(folder)
        if known is not None and known[0] == changed:
            return known
        if time.time_ns() - changed < _JUST_NOW:
            changed = -1
        folders, sessions = [], []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif stored := stored_at(folder, entry.name):
                    sessions.append(stored)
        return changed, folders, sessions


def _own(path: str) -> os.stat_result | None:
    """The status of a file of this user; None for a link, another kind, and another user's."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    return status if is_own else None


def _read_row(stored: Stored) -> JSONObject | None:
    """A row from the two ends of a file, and from the whole where these have no title."""
    try:
        fd = os.open(stored.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        head = os.pread(fd, _END, 0)
        tail = os.pread(fd, _END, status.st_size - _END) if status.st_size > _END else head
        meta, title = head_of(map(parsed, _whole_lines(head)))
        if not meta or (title is None and status.st_size > _END):
            with open(fd, "rb", closefd=False) as file:
                meta, title = head_of(map(parsed, iter(lambda: file.readline(_LONGEST_LINE), b"")))
    finally:
        os.close(fd)
    summary = Summary(stored, meta, title or "", status.st_size, status.st_mtime)
    row = {**summary.to_json(), "model": "", "input": 0, "output": 0, "last": ""}
    del row["path"]
    folder = text_of(summary.meta, "cwd")
    row |= {"cwd": folder, "where": home_relative(folder), "usage": Usage()}
    row |= {"provider": text_of(summary.meta, "model_provider")}
    row |= _latest(tail)
    row["rests"] = _rests(tail)
    # A long turn has named its model far from the end.
    return row if row["model"] else row | {"model": _latest(head).get("model", "")}


def text_of(meta: JSONObject, name: str) -> str:
    """A text of a session's first line; empty where a line that others wrote has none."""
    value = meta.get(name)
    return value if isinstance(value, str) else ""


def home_relative(folder: str) -> str:
    """A folder as people write it, from their home folder on."""
    home = _home()
    return "~" + folder[len(home) :] if home and f"{folder}/".startswith(f"{home}/") else folder


@cache
def _home() -> str:
    return os.path.expanduser("~").rstrip("/")


def _whole_lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield data[start:end]
        start = end + 1


def _latest(tail: bytes) -> JSONObject:
    """The latest model, tokens and message in the end of a file; few lines are parsed."""
    found: JSONObject = {}
    for kind, (sign, take) in _LATEST.items():
        end = len(tail)
        while (at := tail.rfind(sign, 0, end)) >= 0:
            end = tail.rfind(b"\n", 0, at) + 1
            stop = tail.find(b"\n", at)
            line = tail[end:stop] if stop >= 0 else b""
            event = next((one for one in line_events(line) if one["kind"] == kind), None)
            if event is not None:
                found |= take(event)
                break
    return found


def _rests(tail: bytes) -> bool:
    """Whether the last thing that a session wrote down is a message of the model."""
    at = max(tail.rfind(sign) for sign in (b'"response_item"', b'"turn_context"'))
    line = tail[at : tail.find(b"\n", at)] if at >= 0 else b""
    return b'"assistant"' in line[:400]


_MARKS = re.compile(r"^[ \t]*(?:[#>]+[ \t]+|[*+-][ \t]+|```.*$)|\*\*|`", re.MULTILINE)


def _plain(text: str) -> str:
    """The beginning of a message on one line, without the marks of Markdown."""
    return " ".join(_MARKS.sub("", text[: 4 * _LAST]).split())[:_LAST]


_LATEST: dict[str, tuple[bytes, Callable[[JSONObject], JSONObject]]] = {
    "turn": (b"turn_context", lambda event: {"model": event["model"]}),
    "tokens": (
        b"token_count",
        lambda event: {
            "input": event["input"],
            "output": event["output"],
            "usage": Usage(
                event["input"], event["cached"], event["output"], 0, 0, event["written"]
            ),
        },
    ),
    "message": (b"assistant", lambda event: {"last": _plain(event["text"])}),
}
"""By kind of event: a word that its line has, and what a row takes from it."""


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
