"""Stored sessions: find and list them, reading as little of each file as possible."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator

from msgspec import Struct

from toolrest.agent.history.history import is_user_turn, message_text, own_text
from toolrest.agent.history.journal import FOLDER, NAME
from toolrest.agent.history.rollout import lines_of, parsed
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.private_files import regular_file

_HEAD_LINES = 40
_TITLE = 80
_SAID = 200
_TAIL = 256 << 10
"""Bytes at the end of a session's file in which its last message is looked for."""
SHORTEST_PREFIX = 4
LISTED = ("`toolrest sessions list` has them all.",)
"""The hint where a session is not found."""


class Stored(Struct):
    """A session's file, known by its name alone."""

    path: str
    thread_id: str
    started: str


class Summary(Struct):
    """The row of a session in a list."""

    stored: Stored
    meta: JSONObject
    title: str
    size: int
    changed: float

    def to_json(self) -> JSONObject:
        """The row as JSON."""
        return {
            "id": self.stored.thread_id,
            "started": self.stored.started,
            "changed": self.changed,
            "cwd": self.meta.get("cwd"),
            "title": self.title,
            "bytes": self.size,
            "path": self.stored.path,
        }


def stored_sessions(home: str) -> list[Stored]:
    """Every session, the latest first."""
    found: list[Stored] = []
    for folder, _, names in os.walk(os.path.join(home, FOLDER)):
        found += filter(None, (stored_at(folder, name) for name in names))
    return latest_first(found)


def stored_at(folder: str, name: str) -> Stored | None:
    """The session whose file has this name; None for another file."""
    match = NAME.fullmatch(name)
    return Stored(os.path.join(folder, name), match[2], match[1]) if match else None


def latest_first(found: Iterable[Stored]) -> list[Stored]:
    """The sessions by the time of their start, the latest first."""
    return sorted(found, key=lambda stored: (stored.started, stored.thread_id), reverse=True)


def summaries(home: str, cwd: str | None = None) -> Iterator[Summary]:
    """The sessions, the latest first; with `cwd`, only those of that folder."""
    for stored in stored_sessions(home):
        found = summary_of(stored)
        if found is not None and (cwd is None or found.meta.get("cwd") == cwd):
            yield found


def summary_of(stored: Stored) -> Summary | None:
    """The row of one session; None when its file cannot be read."""
    try:
        meta, title = head_of(lines_of(stored.path))
        status = os.stat(stored.path)
    except (ConfigError, OSError):
        return None
    return Summary(stored, meta, title or "", status.st_size, status.st_mtime)


def head_of(lines: Iterable[tuple[str, JSONObject] | None]) -> tuple[JSONObject, str | None]:
    """The meta line and the title in a session's first lines; None without a user's message."""
    meta: JSONObject = {}
    for line in itertools.islice(lines, _HEAD_LINES):
        kind, payload = line if line is not None else ("", {})
        if kind == "session_meta":
            meta = meta or payload
        elif kind == "turn_context":  # says it where the first line is damaged
            meta = meta or {"cwd": payload.get("cwd")}
        elif kind == "response_item" and is_user_turn(payload):
            return meta, " ".join(own_text(payload).split())[:_TITLE]
    return meta, None


def last_said(path: str) -> str:
    """The last message of a session, on one line; read from the end of its file."""
    try:
        with open(path, "rb", opener=regular_file) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        kind, payload = parsed(line) or ("", {})
        is_models = payload.get("type") == "message" and payload.get("role") == "assistant"
        if kind == "response_item" and (is_models or is_user_turn(payload)):
            return " ".join(message_text(payload).split())[:_SAID]
    return ""


def find_session(home: str, wanted: str) -> Stored:
    """The session with this id, or with an id that starts like this."""
    if len(wanted) < SHORTEST_PREFIX:
        raise ConfigError(f"{wanted!r}: give at least {SHORTEST_PREFIX} characters of the id")
    found = [stored for stored in stored_sessions(home) if stored.thread_id.startswith(wanted)]
    exact = [stored for stored in found if stored.thread_id == wanted]
    if exact or len(found) == 1:
        return (exact or found)[0]
    if found:
        ids = ", ".join(stored.thread_id for stored in found[:5])
        raise ConfigError(f"several sessions start with {wanted!r}: {ids}")
    raise ConfigError(f"there is no session {wanted!r}", hints=LISTED)


def exact_session(home: str, thread_id: str) -> Stored:
    """The session with exactly this id."""
    for stored in stored_sessions(home):
        if stored.thread_id == thread_id:
            return stored
    raise ConfigError(f"there is no session {thread_id!r}", hints=LISTED)


def latest_session(home: str, cwd: str | None = None) -> Stored:
    """The session that was written to last; with `cwd`, of that folder."""
    rows = sorted(summaries(home, cwd), key=lambda row: row.changed, reverse=True)
    if not rows:
        where = f" in {cwd}" if cwd else ""
        raise ConfigError(f"there is no earlier session{where}", hints=LISTED)
    return rows[0].stored
