"""Read a rollout: the conversation to resume, whatever state a crash left it in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field
from msgspec.json import decode

from toolrest.agent.history.compaction import condensed, is_summary
from toolrest.agent.history.history import is_user_turn, message_text, own_text
from toolrest.agent.history.tokens import AGENT_TOKENS, usage_from
from toolrest.errors import ConfigError
from toolrest.events import WeakSandbox
from toolrest.items import JSONObject
from toolrest.wire.items.pairing import call_id_of, is_call
from toolrest.wire.model import Usage

_NOT_STORED = ("system",)


class Rollout(Struct):
    """A session as read from its file."""

    path: str
    meta: JSONObject = field(default_factory=dict)
    items: list[JSONObject] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    spent: dict[str, Usage] = field(default_factory=dict)
    """The tokens by the names of the models."""
    context: JSONObject = field(default_factory=dict)
    """The latest turn's settings."""
    call_ids: set[str] = field(default_factory=set)
    """The ids of all calls, also of those that a summary has replaced."""
    lines: int = 0
    answer: str | None = None
    """The reply that ended the last turn; None when the turn was cut off before it."""

    weak_sandbox_said: bool = False
    """Whether the person has read that the sandbox is weak."""

    @property
    def thread_id(self) -> str:
        """The session's id."""
        return str(self.meta.get("id", ""))

    def messages(self) -> list[tuple[int, str]]:
        """The user's messages since the last summary, each with its place in the items."""
        found: list[tuple[int, str]] = []
        for at, item in enumerate(self.items):
            if is_summary(item):
                found.clear()
            elif is_user_turn(item):
                found.append((at, own_text(item)))
        return found

    @property
    def ends_with_message(self) -> bool:
        """Whether the last item is the model's message."""
        return bool(self.items) and self.items[-1].get("role") == "assistant"

    def feed(self, kind: str, payload: JSONObject) -> None:
        """Take one line's content."""
        if kind == "session_meta":
            self.meta = self.meta or payload
        elif kind == "response_item":
            self.answer = None
            if payload.get("role") not in _NOT_STORED:
                self.items.append(payload)
                if is_call(payload):
                    self.call_ids.add(call_id_of(payload))
        elif kind == "compacted":
            self.answer = None
            self._compacted(payload)
        elif kind == "turn_context":
            self.context = payload
        elif kind == "event_msg":
            self._event(payload)

    def _compacted(self, payload: JSONObject) -> None:
        replacement = payload.get("replacement_history")
        if isinstance(replacement, list):
            self.items = [item for item in replacement if isinstance(item, dict)]
            return
        self.items = condensed([], self.items, str(payload.get("message", "")))

    def _event(self, payload: JSONObject) -> None:
        if payload.get("type") == "token_count":
            self._count(payload.get("info"), self.context.get("model"))
            if self.ends_with_message:
                self.answer = message_text(self.items[-1])
        elif payload.get("type") == AGENT_TOKENS:
            self._count(payload.get("info"), payload.get("model"))
        elif payload.get("type") == WeakSandbox.type:
            self.weak_sandbox_said = True
        elif payload.get("type") == "thread_rolled_back":
            turns = payload.get("num_turns")
            self._roll_back(turns if type(turns) is int else 1)

    def _count(self, info: Any, model: Any) -> None:
        if isinstance(info, dict):
            last = usage_from(info.get("last_token_usage"))
            self.usage = usage_from(info.get("total_token_usage"))
            self.spent[str(model)] = self.spent.get(str(model), Usage()) + last

    def _roll_back(self, turns: int) -> None:
        starts = [at for at, item in enumerate(self.items) if is_user_turn(item)]
        if turns > 0 and starts:
            self.items = self.items[: starts[max(0, len(starts) - turns)]]


def lines_of(path: str) -> Iterator[tuple[str, JSONObject] | None]:
    """Each line as its type and content; None for one that cannot be used."""
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.strip():
                    yield parsed(line)
    except OSError as error:
        raise ConfigError(f"the session {path} cannot be read: {error.strerror}") from None


def line_json(line: bytes) -> Any:
    """The value of a line; ValueError or RecursionError when it is not JSON."""
    try:
        return decode(line)
    except ValueError:
        return json.loads(line)  # slower; it also takes a half of a surrogate pair, and NaN


def parsed(line: bytes) -> tuple[str, JSONObject] | None:
    """A line as its type and content; None when it cannot be used."""
    try:
        value = line_json(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    kind, payload = value.get("type"), value.get("payload")
    return (kind, payload) if isinstance(kind, str) and isinstance(payload, dict) else None


def read_rollout(path: str) -> Rollout:
    """Read a whole rollout; lines that a crash cut are skipped."""
    rollout = Rollout(path)
    for found in lines_of(path):
        rollout.lines += 1
        if found is not None:
            rollout.feed(*found)
    if not rollout.thread_id:
        raise ConfigError(f"{path} is not a session: it has no session_meta line")
    return rollout
