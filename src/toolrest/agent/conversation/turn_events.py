"""`TurnEvents`: the events of one turn as they happen, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from toolrest.agent.conversation.events import AgentMessageDelta

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.events import Event
    from toolrest.gate.bus import EventStream

Out = TypeVar("Out")


class TurnEvents(AsyncIterator["Event"], Generic[Out]):
    """The events of one turn, in order; the last is a `TaskComplete`. Leaving early ends the turn.

    Use it in `async with`; `async for` alone does, too, where it is read to its end. Reading it
    raises AgentError at the end of a turn without an answer, where the conversation `raises`.
    """

    _stream: EventStream
    _turn: asyncio.Future[TurnResult[Out]] | None = None

    def __init__(
        self, conversation: Conversation[Any], run: Callable[[], Awaitable[TurnResult[Out]]]
    ) -> None:
        self._conversation = conversation
        self._run = run

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> asyncio.Future[TurnResult[Out]]:
        """The turn, which begins with the first look at it."""
        if self._turn is None:
            self._stream = self._conversation.rest.session.bus.stream()
            self._turn = asyncio.ensure_future(self._run())
            self._turn.add_done_callback(lambda _: self._stream.end())
        return self._turn

    def __aiter__(self) -> AsyncIterator[Event]:
        return self if self._turn is not None else self._whole()

    async def _whole(self) -> AsyncIterator[Event]:
        async with self:
            async for event in self:
                yield event

    async def __anext__(self) -> Event:
        turn = self._begin()
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            await turn
            raise

    async def text(self) -> AsyncIterator[str]:
        """The pieces of the model's text as it writes them."""
        async for event in self:
            if isinstance(event, AgentMessageDelta):
                yield event.delta

    async def result(self) -> TurnResult[Out]:
        """The turn's result, when it is over; AgentError when it has no answer."""
        return await self._begin()

    async def aclose(self) -> None:
        """End the turn, if it still runs."""
        turn = self._turn
        if turn is None:
            return
        if not turn.done():
            await asyncio.sleep(0)  # its first step: before it there is no turn to interrupt
        if not turn.done():
            await self._conversation.interrupt()
        await asyncio.wait({turn})
        if not turn.cancelled():
            turn.exception()  # it was raised where the events or the result were read
        self._stream.end()

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
