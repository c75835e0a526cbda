"""Assemble tool calls from the deltas of Chat Completions, as servers really send them."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, field

from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.others import LONGEST, OtherKeys
from toolrest.wire.model import ModelError

_FUNCTION: Final = frozenset({"name", "arguments"})
_ENTRY: Final = frozenset({"id", "index", "type", "function"})
_BARE: Final = _ENTRY | _FUNCTION
_MARKS: Final = re.compile(r'\\.?|["{}]', re.DOTALL)


class _Shape(Struct):
    """The braces of an object that comes in pieces: each is looked at once."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False
    opened: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether the last brace is closed, as it is in every whole object."""
        return self.opened and self.depth <= 0 and not self.in_string

    def feed(self, piece: str) -> None:
        """Look at the next piece."""
        start, self.escaped = int(self.escaped and bool(piece)), self.escaped and not piece
        for mark in _MARKS.findall(piece, start):
            if mark == '"':
                self.in_string = not self.in_string
            elif mark[0] == "\\":
                self.escaped = self.in_string and len(mark) == 1
            elif not self.in_string:
                self.depth += 1 if mark == "{" else -1
                self.opened = True


class Slot(Struct):
    """One call being assembled: first id and first name win, arguments are joined."""

    index: int | None = None
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    shape: _Shape = field(default_factory=_Shape)
    others: JSONObject = field(default_factory=dict)
    """Unknown keys of the call, and of its function."""
    function_others: JSONObject = field(default_factory=dict)

    def add(self, piece: str) -> None:
        """Add to the arguments."""
        self.pieces.append(piece)
        self.shape.feed(piece)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a whole object; read as one only when they may be."""
        if len(self.pieces) > 1 and is_object(self.pieces[-1]):
            return True
        return self.shape.is_closed and is_object("".join(self.pieces))

    @property
    def arguments(self) -> str:
        """The arguments so far; the last piece when a server sends the whole with every piece."""
        text = "".join(self.pieces)
        if len(self.pieces) > 1 and not is_object(text) and is_object(self.pieces[-1]):
            return self.pieces[-1]
        return text


def is_object(text: str) -> bool:
    """Whether a text is a whole JSON object."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class CallAssembler:
    """The assembler of `tool_calls` deltas.

    A delta belongs to the call of its id, else of its index, else to the last one.
    A new id or name at an index that is in use begins another call, unless the call there is
    plainly unfinished.
    """

    def __init__(self, others: OtherKeys | None = None) -> None:
        self.slots: list[Slot] = []
        self._others = OtherKeys("") if others is None else others

    def add(self, delta: Any) -> Iterator[tuple[Slot, str, bool]]:
        """Add a list of deltas; yields each changed slot, the piece, and whether it is new."""
        for entry in delta if isinstance(delta, list) else [delta]:
            if isinstance(entry, dict):
                yield self._entry(entry)

    def _entry(self, entry: dict[str, Any]) -> tuple[Slot, str, bool]:
        function = entry.get("function")
        body = function if isinstance(function, dict) else entry
        call_id, name = _text(entry.get("id")), _text(body.get("name"))
        index = entry.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        piece = _arguments(body.get("arguments"))
        slot = self._find(call_id, index, name)
        is_new = slot is None
        if slot is None:
            slot = Slot(index)
            self.slots.append(slot)
        slot.call_id = slot.call_id or call_id
        slot.name = slot.name or name
        if len(slot.call_id) > LONGEST:
            message = f"the server gave a call an id of {len(slot.call_id)} characters"
            raise ModelError("stream", message, retryable=False)
        self._others.add(slot.others, entry, _ENTRY if body is not entry else _BARE)
        if body is not entry:
            self._others.add(slot.function_others, body, _FUNCTION)
        if piece:
            slot.add(piece)
        return slot, piece, is_new

    def _find(self, call_id: str, index: int | None, name: str) -> Slot | None:
        if call_id:
            known = [slot for slot in self.slots if slot.call_id == call_id]
            if known and not (name and known[-1].index != index):
                return known[-1]
        if index is not None:
            same = [slot for slot in self.slots if slot.index == index]
        else:
            same = self.slots[-1:]
        last = same[-1] if same else None
        return None if last is None or _begins_another(last, call_id, name) else last

    def named(self) -> Iterator[tuple[Slot, str]]:
        """Each call with an id of its own: servers leave them out or use one for all."""
        seen: set[str] = set()
        for slot in self.slots:
            call_id = slot.call_id
            if not call_id or call_id in seen:
                call_id = f"call_{uuid.uuid4().hex[:24]}"
            seen.add(call_id)
            yield slot, call_id


def _begins_another(slot: Slot, call_id: str, name: str) -> bool:
    if not name:
        # A new id alone: some servers make one up for every piece.
        return bool(call_id and slot.call_id and slot.is_whole)
    if not slot.name:
        return False
    if call_id and slot.call_id:
        return not slot.pieces or slot.is_whole
    return name != slot.name or slot.is_whole


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps(value)
