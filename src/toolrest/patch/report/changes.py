"""The changes of a patch, as events and approval requests show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from toolrest.items import JSONObject
from toolrest.patch.plan import Record
from toolrest.patch.text.diff import unified_diff
from toolrest.patch.text.encoding import Unreadable, decode
from toolrest.patch.text.long import count_ends
from toolrest.patch.text.match import is_long

_CONTEXT = 1


class Change(Struct, frozen=True):
    """One file's change: the whole text of an added or deleted file, else a unified diff.

    Of a text of very many lines it says how many there are.
    """

    path: str
    type: Literal["add", "delete", "update"]
    text: str
    move_path: str | None = None

    def to_event(self) -> JSONObject:
        """The value of `changes[path]` in patch events and approval requests."""
        if self.type == "update":
            return {"type": "update", "unified_diff": self.text, "move_path": self.move_path}
        return {"type": self.type, "content": self.text}


def changes(records: Iterable[Record], legacy: str | None = None) -> list[Change]:
    """The change list, sorted by path; of two operations on one path the later one."""
    by_path = {record.path: _change(record, legacy) for record in records}
    return [by_path[path] for path in sorted(by_path)]


def _change(record: Record, legacy: str | None) -> Change:
    before, after = _text(record.before, legacy), _text(record.after, legacy)
    if record.unread:
        return Change(record.path, "delete", f"({record.unread:,} bytes, too large to be shown)\n")
    if record.after is None:
        return Change(record.path, "delete", _listed(before))
    if record.before is None:
        return Change(record.path, "add", _listed(after))
    diff = unified_diff(before, after, _CONTEXT)
    return Change(record.path, "update", diff, record.move_path)


def _listed(text: str) -> str:
    if not is_long(text):
        return text
    return f"[{count_ends(text):,} lines, too many to list]\n"


def _text(data: bytes | None, legacy: str | None) -> str:
    if data is None:
        return ""
    try:
        return decode(data, legacy).text
    except Unreadable:
        return data.decode("utf-8", "replace")
