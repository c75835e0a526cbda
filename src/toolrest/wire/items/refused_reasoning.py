"""Reasoning that a server cannot read: another provider or account has signed or encrypted it."""

from __future__ import annotations

from collections.abc import Sequence

from toolrest.items import JSONObject
from toolrest.wire.items.pairing import is_models


class RefusedReasoning:
    """The reasoning items of a history that a server refused; later ones of its own still go."""

    def __init__(self) -> None:
        self._items: dict[int, JSONObject] = {}

    def add(self, items: Sequence[JSONObject]) -> bool:
        """Refuse all reasoning of a request; False if there was none left in it."""
        found = {id(item): item for item in items if item.get("type") == "reasoning"}
        is_new = not found.keys() <= self._items.keys()
        self._items |= found
        return is_new

    def without(self, items: Sequence[JSONObject]) -> Sequence[JSONObject]:
        """The items without what was refused, and without ids that would lead to it."""
        if not self._items:
            return items
        return [_nameless(item) for item in items if id(item) not in self._items]


def _nameless(item: JSONObject) -> JSONObject:
    """The item without the server's id, by which OpenAI's API would look for its reasoning."""
    if "id" not in item or ("call_id" not in item and item.get("type") != "message"):
        return item
    return {key: item[key] for key in item if key != "id"} if is_models(item) else item
