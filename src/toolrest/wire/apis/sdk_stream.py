"""Streams of the vendors' SDKs: their events as the items of one reply, and back as messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolrest.items import JSONObject, Wire
from toolrest.wire.client import Parser
from toolrest.wire.items.decode import plain
from toolrest.wire.model import ItemDone
from toolrest.wire.provider import OPENAI

_ANTHROPIC = frozenset({"message_start", "content_block_start", "content_block_delta"})


class StreamedReply(Struct):
    """A reply that came in pieces, as Responses items."""

    wire: Wire
    items: list[JSONObject]

    def messages(self, outputs: Sequence[JSONObject]) -> list[JSONObject]:
        """The reply and the outputs of its calls, as the wire's next request has them."""
        items = [*self.items, *outputs]
        if self.wire == "chat":
            from toolrest.wire.apis.chat_messages import chat_messages

            return chat_messages(items, OPENAI)
        if self.wire == "anthropic":
            from toolrest.wire.apis.anthropic_messages import anthropic_messages

            return anthropic_messages(items)
        return items


async def streamed_reply(reply: Any) -> StreamedReply | None:
    """The reply of a stream, sync or async, or of a list of its events; None for anything else.

    ModelError when the stream has an error or breaks off.
    """
    events = await _events(reply)
    for wire in map(_wire, events[:8]):
        if wire == "responses":
            return StreamedReply(wire, list(_responses_items(events)))
        if wire is not None:
            return StreamedReply(wire, list(_parsed(_parser(wire), events)))
    return None


async def _events(reply: Any) -> list[JSONObject]:
    if isinstance(reply, Mapping | str) or hasattr(reply, "model_dump"):
        return []
    if hasattr(reply, "__aiter__"):
        found = [event async for event in reply]
    elif isinstance(reply, list | tuple):
        found = list(reply)
    elif hasattr(reply, "__next__"):
        found = await asyncio.to_thread(list, reply)
    else:
        return []
    values = (plain(getattr(event, "chunk", event)) for event in found)
    return [value for value in values if isinstance(value, dict)]


def _wire(event: JSONObject) -> Wire | None:
    kind = event.get("type")
    if event.get("object") == "chat.completion.chunk":
        return "chat"
    if kind in _ANTHROPIC:
        return "anthropic"
    return "responses" if isinstance(kind, str) and kind.startswith("response.") else None


def _parser(wire: Wire) -> Parser:
    if wire == "chat":
        from toolrest.wire.apis.chat_stream import ChatParser

        return ChatParser(OPENAI, {})
    from toolrest.wire.apis.anthropic_stream import AnthropicParser

    return AnthropicParser({})


def _parsed(parser: Parser, events: Sequence[JSONObject]) -> Iterator[JSONObject]:
    for event in events:
        yield from (made.item for made in parser.take(event) if isinstance(made, ItemDone))
    if parser.completed is None:
        yield from (made.item for made in parser.end() if isinstance(made, ItemDone))


def _responses_items(events: Sequence[JSONObject]) -> Iterator[JSONObject]:
    """The finished items, without what only the SDK's objects have."""
    for event in events:
        if event.get("type") == "response.output_item.done" and isinstance(event.get("item"), dict):
            item = event["item"]
            yield {key: value for key, value in item.items() if value is not None}
