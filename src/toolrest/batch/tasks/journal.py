"""The journal of a task's session: where it is, what was used so far, and its stored copy."""

from __future__ import annotations

import fcntl
import os
import re
import time

from msgspec import Struct, field

from toolrest.agent.history.rollout import Rollout, lines_of
from toolrest.agent.history.stored_sessions import stored_sessions
from toolrest.agent.history.tokens import usage_json
from toolrest.errors import ConfigError, ToolrestError
from toolrest.items import JSONObject
from toolrest.private_files import make_private
from toolrest.wire.items.pairing import is_call
from toolrest.wire.model import Usage

_UNLOCK_SECONDS = 15.0
_NAME = re.compile(r"sessions/(?:\w[\w-]*/)*rollout-[\w-]+\.jsonl", re.ASCII)
"""The path of a journal in a home: what a store says is not trusted with another one."""


class StillOpen(ToolrestError):
    """A session that a process of another runner goes on with, as one that was stopped may."""


class Used(Struct):
    """What a session has used, in all its attempts."""

    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    spent: dict[str, Usage] = field(default_factory=dict)
    """Tokens by the names of the models."""
    model: str | None = None
    """The model of the last turn, which sub-agents' need not be."""

    @property
    def tokens(self) -> int:
        """Tokens in and out together."""
        return self.usage.total or self.usage.input + self.usage.output

    def to_json(self) -> JSONObject:
        """Fields of a result."""
        counts = {"turns": self.turns, "tool_calls": self.tool_calls}
        return {**counts, "usage": usage_json(self.usage)}


def used_in(path: str | None) -> Used:
    """What the session of a journal has used; nothing without one.

    A reply that a kill cut off after one of its calls is a turn, too; its tokens are not known.
    """
    used, rollout, in_reply = Used(), Rollout(path or ""), False
    if path is None:
        return used
    try:
        for found in lines_of(path):
            if found is None:
                continue
            kind, payload = found
            ends_reply = kind == "event_msg" and payload.get("type") == "token_count"
            if ends_reply or (kind == "turn_context" and in_reply):
                used.turns += 1
                in_reply = False
            elif kind == "response_item" and is_call(payload):
                used.tool_calls += 1
                in_reply = True
            if kind == "turn_context" and isinstance(payload.get("model"), str):
                used.model = payload["model"]
            if kind in ("event_msg", "turn_context"):
                rollout.feed(kind, payload)
    except ConfigError:
        return used
    used.turns += in_reply
    used.usage, used.spent = rollout.usage, rollout.spent
    return used


def sandbox_mode_in(path: str | None) -> str | None:
    """The sandbox mode of a journal's last turn; None where it has none."""
    mode = None
    try:
        for found in lines_of(path) if path is not None else ():
            if found is not None and found[0] == "turn_context":
                policy = found[1].get("sandbox_policy")
                mode = policy.get("type") if isinstance(policy, dict) else None
    except ConfigError:
        return None
    return mode if isinstance(mode, str) else None


def journal_of(home: str, thread_id: str) -> str | None:
    """The journal of a session in a task's home."""
    found = (one.path for one in stored_sessions(home) if one.thread_id == thread_id)
    return next(found, None)


def is_usable(path: str) -> bool:
    """Whether a session can be resumed from a journal: the prompt is in it.

    The lines of what a session opens with end with a `turn_context`; the prompt follows.
    """
    kinds: list[str] = []
    try:
        for found in lines_of(path):
            kinds.append(found[0] if found is not None else "")
            if kinds[-1] == "response_item" and "turn_context" in kinds:
                return kinds[0] == "session_meta"
    except ConfigError:
        return False
    return False


def restore(home: str, name: object, data: bytes, *, is_latest: bool = True) -> str | None:
    """Put a stored journal into a task's home, unless the one there is longer; returns its path.

    With `is_latest` the one there is of the last attempt; otherwise the stored one counts.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} in the store is no journal")
    path = os.path.join(home, *name.split("/"))
    size = os.path.getsize(path) if os.path.exists(path) and (is_latest or not data) else -1
    if size >= len(data) or not data:
        return path if size > 0 else None
    make_private(os.path.dirname(path))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    return path


def wait_until_closed(path: str) -> bool:
    """Wait until no process has the journal open: a dead runner's child may be dying still."""
    end = time.monotonic() + _UNLOCK_SECONDS
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(0.05)
            else:
                return True
    finally:
        os.close(fd)


def only_journal(home: str) -> str | None:
    """The first session's journal in a task's home that can be used; sub-agents' are later."""
    found = (one.path for one in reversed(stored_sessions(home)))
    return next(filter(is_usable, found), None)
