"""Read a rollout: the conversation to resume, whatever state a crash left it in.

`recover` makes it of the lines and of nothing else. A line that cannot be used is left out for
one of the reasons in `Loss`, never silently, and costs no other line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.json import decode

from toolrest.agent.history.compaction import condensed, is_summary
from toolrest.agent.history.history import is_user_turn, message_text, own_text
from toolrest.agent.history.journal import EARLY_OUTPUT, NAME
from toolrest.agent.history.tokens import AGENT_TOKENS, usage_from
from toolrest.errors import ConfigError
from toolrest.events import WeakSandbox
from toolrest.items import JSONObject
from toolrest.private_files import regular_file
from toolrest.wire.items.pairing import answers, call_id_of, is_call
from toolrest.wire.model import Usage

_NOT_STORED = ("system",)
_MOST_NUMBERS = 5


class Loss(StrEnum):
    """The reasons why a line of a rollout is left out."""

    CUT = "cut off"
    NOT_JSON = "not JSON"
    NOT_A_RECORD = "no record"
    NOT_AN_ITEM = "an item without a type"


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
    early: dict[str, JSONObject] = field(default_factory=dict)
    """Outputs that were written before their place in the conversation was free."""
    lines: int = 0
    lost: list[tuple[int, Loss]] = field(default_factory=list)
    """The lines that could not be used, by their numbers."""
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
    def loss(self) -> str | None:
        """A sentence about the lines that are left out; None without any."""
        if not self.lost:
            return None
        shown = ", ".join(f"{number} ({why})" for number, why in self.lost[:_MOST_NUMBERS])
        left = len(self.lost) - _MOST_NUMBERS
        more = f" and {left} more" if left > 0 else ""
        lines = "line" if len(self.lost) == 1 else "lines"
        return f"this session goes on without {lines} {shown}{more} of its journal {self.path}"

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
        elif payload.get("type") == EARLY_OUTPUT and isinstance(payload.get("item"), dict):
            self.early[call_id_of(payload["item"])] = payload["item"]
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
    return map(parsed, _raw_lines(path))


def _raw_lines(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb", opener=regular_file) as file:
            for line in file:
                if line.strip():
                    yield line
    except OSError as error:
        raise ConfigError(f"cannot read the session {path}: {error.strerror}") from None


def line_json(line: bytes) -> Any:
    """The value of a line; ValueError or RecursionError when it is not JSON."""
    try:
        return decode(line)
    except ValueError:
        return json.loads(line)  # slower; it also takes a half of a surrogate pair, and NaN


def parsed(line: bytes) -> tuple[str, JSONObject] | None:
    """A line as its type and content; None when it cannot be used."""
    found = _record(line)
    return None if isinstance(found, Loss) else found


def _record(line: bytes) -> tuple[str, JSONObject] | Loss:
    """A line as its type and content, or the reason why it cannot be used."""
    try:
        value = line_json(line)
    except (ValueError, RecursionError):
        return Loss.NOT_JSON if line.endswith(b"\n") else Loss.CUT
    kind, payload = (value.get("type"), value.get("payload")) if isinstance(value, dict) else (0, 0)
    if not isinstance(kind, str) or not isinstance(payload, dict):
        return Loss.NOT_A_RECORD
    if kind == "response_item" and not isinstance(payload.get("type"), str):
        return Loss.NOT_AN_ITEM
    return kind, payload


def recover(path: str, lines: Iterable[bytes]) -> Rollout:
    """The session that these lines of the file at `path` add up to; opens nothing.

    Without its first line it has the id in the file's name and the folder of its first turn.
    ConfigError when nothing says whose lines they are.
    """
    rollout = Rollout(path)
    folder: Any = None
    for number, line in enumerate(lines, 1):
        rollout.lines = number
        found = _record(line)
        if isinstance(found, Loss):
            rollout.lost.append((number, found))
            continue
        rollout.feed(*found)
        folder = folder or rollout.context.get("cwd")
    name = NAME.fullmatch(os.path.basename(path))
    if not rollout.thread_id and name is not None and len(rollout.lost) < rollout.lines:
        rollout.meta = {"cwd": folder, **rollout.meta, "id": name[2]}
    if not rollout.thread_id:
        raise ConfigError(f"{path} is not a session: it has no session_meta line")
    found_outputs = answers(rollout.items)
    for at, item in enumerate(rollout.items[:]):
        if is_call(item) and at not in found_outputs and call_id_of(item) in rollout.early:
            rollout.items.append(rollout.early[call_id_of(item)])
    return rollout


def read_rollout(path: str) -> Rollout:
    """Read a whole rollout; its `loss` says what of it could not be read."""
    return recover(path, _raw_lines(path))
