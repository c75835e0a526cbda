"""Keys of others: what a server adds to its calls and messages, and may want to get back.

Google signs calls in such a key, gateways keep their notes there. An item holds them under
`others`, with the provider and address they came from: they go back there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import Struct, field

from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps

OTHERS: Final = "others"
LONGEST: Final = 64 << 10
"""Characters of the unknown keys of one message, and of the id of one call."""
_DEEPEST: Final = 32
_PARTS: Final = ("message", "call", "function", "block")


class Origin(Struct, frozen=True):
    """A server as the place where unknown keys go back to; it has `refused` some by name.

    `any_ids`: it takes the ids of calls as it gave them, however long.
    """

    place: str = ""
    refused: AbstractSet[str] = frozenset()
    any_ids: bool = True

    def part(self, item: JSONObject, part: str) -> JSONObject:
        """The unknown keys of an item's part that this server sent and takes back."""
        kept = item.get(OTHERS)
        if not isinstance(kept, dict) or kept.get("from") != self.place:
            return {}
        keys = kept.get(part)
        if not isinstance(keys, dict):
            return {}
        return {key: value for key, value in keys.items() if key not in self.refused}

    def call_id(self, item: JSONObject) -> str:
        """The id of a call as this server gave it; empty where the item's own is the same."""
        if not self.any_ids:
            return ""
        kept = item.get(OTHERS)
        own = kept.get("id") if isinstance(kept, dict) and kept.get("from") == self.place else None
        return own if isinstance(own, str) else ""


class OtherKeys(Struct):
    """The unknown keys of one message, put together from its pieces; none if they are too long."""

    place: str
    size: int = 0
    message: JSONObject = field(default_factory=dict)

    def add(self, kept: JSONObject, piece: Mapping[str, Any], known: AbstractSet[str]) -> None:
        """Add a piece's keys that are not known: texts are joined, objects merged."""
        for key, value in piece.items():
            if key in known or is_empty(value):
                continue
            self.size += len(key) + len(dumps(value))
            if self.size <= LONGEST:
                kept[key] = _merged(kept.get(key), value)

    def on(self, item: JSONObject, **parts: JSONObject | str) -> JSONObject:
        """The item with these parts of what is kept, if there is anything."""
        if self.size > LONGEST:
            parts = {"id": parts.get("id", "")}
        given = {part: value for part, value in parts.items() if value}
        return item | {OTHERS: {"from": self.place, **given}} if given else item


def names_of(items: Iterable[JSONObject], place: str) -> Sequence[str]:
    """The unknown keys of a history that go back to this place."""
    origin = Origin(place)
    parts = (origin.part(item, part) for item in items if OTHERS in item for part in _PARTS)
    return sorted({key for keys in parts for key in keys})


def is_empty(value: Any, depth: int = 0) -> bool:
    """Whether a value says nothing: null, or an empty text, list or object."""
    if isinstance(value, dict) and depth < _DEEPEST:
        return all(is_empty(each, depth + 1) for each in value.values())
    return value is None or value in ("", [])


def _merged(before: Any, value: Any, depth: int = 0) -> Any:
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, dict) and isinstance(value, dict) and depth < _DEEPEST:
        more = {key: _merged(before.get(key), each, depth + 1) for key, each in value.items()}
        return {**before, **more}
    return value
