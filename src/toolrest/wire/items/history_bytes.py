"""A history as the bytes of a request, of which only the new end is made anew.

Sessions send their whole history with every request. What lies before the model's last items
cannot change any more, so its bytes are kept: the work of one request stays the same however
long the session is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.pairing import (
    CallIds,
    Legal,
    answers,
    call_id_of,
    is_call,
    is_models,
    is_output,
    paired,
    printable_id,
    traced,
)
from toolrest.wire.items.parts import is_blank

Messages: TypeAlias = Callable[[Sequence[JSONObject]], list[JSONObject]]
"""Paired items as a wire's messages. Called for stretches that begin with a model's item."""


class Rendered(Struct):
    """The messages of a history: what is settled as JSON, joined by commas, and the rest.

    `last` is the last settled message, and `last_size` its length at the end of `settled`.
    """

    settled: bytes | bytearray
    rest: list[JSONObject]
    last: JSONObject | None = None
    last_size: int = 0


class EncodedHistory:
    """The renderer of a growing list of items. Pass the same item objects, unchanged, every time.

    `speaks` is true for the model's items that make a message on the wire. `forgets` is for
    wires on which reasoning is sent back only until the next user message.
    """

    def __init__(
        self,
        messages: Messages,
        *,
        speaks: Callable[[JSONObject], bool] = is_models,
        legal: Legal = printable_id,
        forgets: bool = False,
    ) -> None:
        self._messages = messages
        self._speaks = speaks
        self._legal = legal
        self._forgets = forgets
        self._reset()

    def _reset(self) -> None:
        self._settled: list[JSONObject] = []
        self._joined = bytearray()
        self._names = CallIds(self._legal)
        self._aborted: set[str] = set()
        self._remembers = False
        self._last: JSONObject | None = None
        self._last_size = 0

    def render(self, items: Sequence[JSONObject]) -> Rendered:
        """The history's messages. `settled` is valid until the next call."""
        end = self._unsettled_from(items)
        if end == 0 and self._settled:
            self._reset()
        tail = list(items[end:])
        # The tail comes again next time: its names must not be used up.
        made = traced(tail, self._names.copy())
        at = self._last_group(made)
        if at > 0 and not _late(tail, at):
            self._settle(tail[:at], followed_by_user=_has_user_message(tail[at:]))
            made = traced(tail[at:], self._names.copy())
        rest = [item for item, _ in made]
        rest = self._messages(self._fresh(rest, before_user=False))
        return Rendered(self._joined, rest, self._last, self._last_size)

    def _unsettled_from(self, items: Sequence[JSONObject]) -> int:
        """The number of settled items; 0 when everything has to be made anew."""
        count = len(self._settled)
        # Lists compare the same objects by identity, so this is quick.
        if list(items[:count]) != self._settled:
            return 0
        new = items[count:]
        if self._aborted and any(is_output(i) and call_id_of(i) in self._aborted for i in new):
            return 0
        return 0 if self._remembers and _has_user_message(new) else count

    def _last_group(self, made: Sequence[tuple[JSONObject, int]]) -> int:
        """The start, in the original, of the last stretch of the model's own items; 0 for none.

        Blank items do not divide: the messages on both sides of them become one.
        """
        at = len(made) - 1
        while at >= 0 and not self._speaks(made[at][0]):
            at -= 1
        begin = at
        while at > 0 and (is_models(made[at - 1][0]) or is_blank(made[at - 1][0])):
            at -= 1
            begin = at if is_models(made[at][0]) else begin
        return made[begin][1] if at > 0 else 0

    def _settle(self, items: list[JSONObject], *, followed_by_user: bool) -> None:
        found = answers(items)
        self._aborted |= {
            call_id_of(item) for n, item in enumerate(items) if is_call(item) and n not in found
        }
        fresh = self._fresh(paired(items, self._names), before_user=followed_by_user)
        self._remembers = self._forgets and (
            any(item.get("type") == "reasoning" for item in fresh)
            or (self._remembers and not _has_user_message(items))
        )
        for message in self._messages(fresh):
            raw = dumps(message).encode()
            self._joined += b"," + raw if self._joined else raw
            self._last, self._last_size = message, len(raw)
        self._settled += items

    def _fresh(self, items: list[JSONObject], *, before_user: bool) -> list[JSONObject]:
        """The items without reasoning before the last user message, where the wire forgets it."""
        if not self._forgets:
            return items
        last = len(items) if before_user else _last_user(items)
        return [item for n, item in enumerate(items) if n > last or item.get("type") != "reasoning"]


def _late(items: Sequence[JSONObject], at: int) -> bool:
    """Whether an output after that position belongs to a call before it."""
    later = {id(item) for item in items[at:] if is_output(item)}
    if not later:
        return False
    return any(place < at and id(item) in later for place, item in answers(items).items())


def _is_user(item: JSONObject) -> bool:
    return item.get("type") == "message" and item.get("role") == "user"


def _has_user_message(items: Sequence[JSONObject]) -> bool:
    return any(map(_is_user, items))


def _last_user(items: Sequence[JSONObject]) -> int:
    return max((n for n, item in enumerate(items) if _is_user(item)), default=-1)
