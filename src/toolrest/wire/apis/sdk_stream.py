"""Streams of the vendors' SDKs: their events as the items of one reply, and back as messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from toolrest.items import JSONObject, Wire
from toolrest.wire.apis.anthropic_messages import anthropic_messages
from toolrest.wire.apis.chat_messages import chat_messages
from toolrest.wire.items.decode import plain
from toolrest.wire.model import ItemDone
from toolrest.wire.provider import OPENAI
from toolrest.wire.reply import Parser

_ANTHROPIC = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


class StreamedReply(Struct):
    """A reply that came in pieces, as Responses items."""

    wire: Wire
    items: list[JSONObject]

    def messages(self, outputs: Sequence[JSONObject]) -> list[JSONObject]:
        """The reply and the outputs of its calls, as the wire's next request has them."""
        items = [*self.items, *outputs]
        if self.wire == "chat":
            return chat_messages(items, OPENAI)
        if self.wire == "anthropic":
            return anthropic_messages(items)
        return items


def streamed_reply(reply: Any) -> StreamedReply | None:
    """The reply of a stream, given as a list of its events; None for anything else.

    ModelError when the stream has an error or breaks off.
    """
    found = reply if isinstance(reply, list | tuple) else ()
    values = (plain(getattr(event, "chunk", event)) for event in found)
    events = [value for value in values if isinstance(value, dict)]
    for wire in map(wire_of, events[:8]):
        if wire is not None:
            return StreamedReply(wire, list(_parsed(_parser(wire), events)))
    return None


def wire_of(event: Mapping[str, Any]) -> Wire | None:
    """The wire of an event of a stream; None for any other object."""
    kind = event.get("type")
    if event.get("object") == "chat.completion.chunk":
        return "chat"
    if kind in _ANTHROPIC:
        return "anthropic"
    return "responses" if isinstance(kind, str) and kind.startswith("response.") else None


def _parser(wire: Wire) -> Parser:
    if wire == "chat":
        from toolrest.wire.apis.chat_stream import ChatParser, Endings

        # The caller read the stream: it has the finish reason, or knows that the server sends none.
        return ChatParser(OPENAI, {}, endings=Endings(unmarked=2))
    if wire == "responses":
        from toolrest.wire.apis.responses import ResponsesParser

        return ResponsesParser()
    from toolrest.wire.apis.anthropic_stream import AnthropicParser

    return AnthropicParser({})


def _parsed(parser: Parser, events: Sequence[JSONObject]) -> Iterator[JSONObject]:
    """The finished items, without the keys that only the SDK's objects have."""
    made = [found for event in events for found in parser.take(event)]
    made += [] if parser.completed is not None else parser.end()
    for found in made:
        if isinstance(found, ItemDone):
            yield {key: value for key, value in found.item.items() if value is not None}
