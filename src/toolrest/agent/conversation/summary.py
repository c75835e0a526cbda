"""The request for a summary of a conversation: repeated, and shortened until it fits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct

from toolrest.agent.history.compaction import without_oldest
from toolrest.agent.history.history import message_text, without_images
from toolrest.items import JSONObject
from toolrest.wire.items.pairing import is_call
from toolrest.wire.model import Completed, ItemDone, ModelError, Retrying, TextDelta

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.wire.model import ModelEvent

CUT = "[the summary was cut here]"
BeforeRetry: TypeAlias = Callable[[ModelError, int], Awaitable[None]]
"""Waits before a repetition, given the error and its number; raises the error if it is final."""


class _Reply(Struct):
    text: str = ""
    begun: str = ""
    """The text of a message that is not complete yet."""
    made_call: bool = False

    def take(self, event: ModelEvent) -> None:
        if isinstance(event, TextDelta):
            self.begun += event.text
        elif isinstance(event, ItemDone) and event.item.get("type") == "message":
            self.text, self.begun = message_text(event.item) or self.text, ""
        elif isinstance(event, ItemDone):
            self.made_call |= is_call(event.item)

    def cut(self) -> str:
        """What there is of a text that the model's limit cut."""
        text = (self.begun or self.text).strip()
        return f"{text}\n{CUT}" if text else ""


class SummaryRequest:
    """A summary of a conversation, as the model writes it."""

    def __init__(self, conversation: Conversation, turn_id: str, before_retry: BeforeRetry) -> None:
        self._conversation = conversation
        self._turn_id = turn_id
        self._before_retry = before_retry
        self._attempt = 0
        self._offers = False
        self._reply = _Reply()

    async def run(self, items: Sequence[JSONObject], prompt: JSONObject) -> str:
        """The text of the summary; empty when the model writes none."""
        kept = list(items)
        # Some servers refuse a history with calls unless the tools are there; so they are sent,
        # which also keeps the server's cache, but may not be called.
        self._offers = any(map(is_call, kept))
        called = False
        while True:
            try:
                text = await self._ask([*kept, prompt])
            except ModelError as error:
                images = is_about_images(error)
                if images and (seen := without_images(kept, anywhere=True)) is not None:
                    kept = seen
                elif error.kind == "context_window" and kept:
                    kept = _shorter(kept)
                elif called and error.kind == "invalid_request":
                    return ""  # it neither writes with the tools nor takes the history without
                else:
                    await self._after(error)
                continue
            called = self._offers and self._reply.made_call and not text
            if not called:
                return text
            self._offers = False

    async def _after(self, error: ModelError) -> None:
        """Wait for the next try; without the tools if they may be what the server refuses."""
        offered = self._offers
        if error.kind in ("invalid_request", "server"):
            self._offers = False
        if error.kind == "invalid_request" and offered:
            return
        self._attempt += 1
        await self._before_retry(error, self._attempt)

    async def _ask(self, items: Sequence[JSONObject]) -> str:
        """The last text of the reply to one request."""
        conversation = self._conversation
        request = conversation.request(
            self._turn_id, None, items=items, plain=not self._offers, may_call=not self._offers
        )
        request.retries = max(0, conversation.model.stream_max_retries - self._attempt)
        self._reply = _Reply()
        retried = 0
        try:
            async with aclosing(cast(Any, conversation.model.stream(request))) as stream:
                async for event in stream:
                    self._reply.take(event)
                    if isinstance(event, Retrying):
                        retried = event.attempt
                    elif isinstance(event, Completed):
                        conversation.count(event.usage)
        except ModelError as error:
            self._attempt += retried
            if error.kind != "incomplete":
                raise
            return self._reply.cut()
        return self._reply.text


def is_about_images(error: ModelError) -> bool:
    """Whether images may be what a server refuses; a request is too large because of them."""
    return error.kind == "invalid_image" or error.status == 413


def _shorter(items: Sequence[JSONObject]) -> list[JSONObject]:
    """The items without the oldest quarter: one by one could take hundreds of requests."""
    kept = list(items)
    for _ in range(max(1, len(items) // 4)):
        kept = without_oldest(kept)
    return kept
