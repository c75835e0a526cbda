"""`Conversation`: turns with an agent that remembers, typed answers, events, pending approvals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from toolrest.agent.conversation.events import AgentMessageDelta
from toolrest.errors import ToolrestError

if TYPE_CHECKING:
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.agent.conversation.session import AgentSession, Prompt
    from toolrest.agent.front.output_type import OutputType
    from toolrest.agent.rest import Toolrest
    from toolrest.events import Event
    from toolrest.gate.approval.pending import PendingApproval
    from toolrest.gate.approval.request import ReviewDecision
    from toolrest.gate.bus import EventStream
    from toolrest.items import JSONObject

Out = TypeVar("Out")


class AgentError(ToolrestError):
    """A run without an answer: the model failed, a limit was reached, or it was stopped.

    `result` has the status, the reason as one word, the text so far and the usage.
    """

    def __init__(self, result: TurnResult[Any], message: str) -> None:
        super().__init__(message)
        self.result = result


class Conversation(Generic[Out]):
    """One conversation with an agent: `async with agent.session() as chat: await chat.run("…")`.

    Turns remember what was said. With the agent's `home=` it is stored: `agent.session(resume=id)`
    goes on with it, also in another process, and `fork=id` with a copy.
    """

    def __init__(self, session: AgentSession, output: OutputType[Out], retries: int) -> None:
        self.session = session
        self._output = output
        self._retries = retries

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop what runs and close the session."""
        await self.session.aclose()

    @property
    def id(self) -> str:
        """The session's id, for resuming or forking it."""
        return self.session.thread_id

    @property
    def rest(self) -> Toolrest:
        """The session's tools."""
        return self.session.rest

    @property
    def history(self) -> list[JSONObject]:
        """All messages, calls and outputs so far, as items of the Responses API."""
        return list(self.session.history.items)

    @property
    def pending(self) -> list[PendingApproval]:
        """The approvals that the last turn waits for (`on_ask="defer"`), the oldest first."""
        held = self.session.held
        return [] if held is None else held.pending

    async def run(self, prompt: Prompt) -> TurnResult[Out]:
        """Run one turn and return its answer; AgentError when there is none.

        An answer that is not of the agent's `output_type` goes back to the model with what is
        wrong, up to `retries` times. With `on_ask="defer"` the status may be `pending`: the turn
        goes on with `resume`.
        """
        result = await self.session.run(prompt, form=self._output.form(self._retries))
        result.session_id, result.pending = self.id, self.pending
        if result.status == "pending":
            return result
        if result.status != "completed":
            raise AgentError(result, result.error or f"the run was {result.status}")
        result._output = self._output.read(result.text)
        return result

    async def resume(
        self, pending: PendingApproval, answer: ReviewDecision = "approved", note: str = ""
    ) -> TurnResult[Out]:
        """Answer a pending approval; once none is left, the turn goes on to its answer.

        Also in another process than the one that asked. A call is run at most once; PendingError
        has the reason when the approval cannot be used.
        """
        held = self.session.held
        if held is None:
            raise ToolrestError('this session keeps no pending approvals: use on_ask="defer"')
        await held.resume(pending, answer, note)
        if held:
            return held.result()
        return await self.run([])

    def stream(self, prompt: Prompt) -> TurnEvents[Out]:
        """The events of a turn: `async with chat.stream("…") as events`."""
        return TurnEvents(self, prompt)

    def say(self, prompt: Prompt) -> None:
        """Add a message to the running turn; the model gets it with its next request."""
        self.session.say(prompt)

    async def interrupt(self) -> None:
        """End the running turn, whose `run` then raises AgentError."""
        await self.session.interrupt()


class TurnEvents(AsyncIterator["Event"], Generic[Out]):
    """The events of one turn, in order. Leaving the block early ends the turn.

    Iterating raises AgentError at the end of a turn without an answer.
    """

    _stream: EventStream
    _turn: asyncio.Future[TurnResult[Out]]

    def __init__(self, conversation: Conversation[Out], prompt: Prompt) -> None:
        self._conversation = conversation
        self._prompt = prompt

    async def __aenter__(self) -> Self:
        self._stream = self._conversation.rest.session.bus.stream()
        self._turn = asyncio.ensure_future(self._conversation.run(self._prompt))
        self._turn.add_done_callback(lambda _: self._stream.end())
        return self

    async def __anext__(self) -> Event:
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            await self._turn
            raise

    async def text(self) -> AsyncIterator[str]:
        """The pieces of the model's text as it writes them."""
        async for event in self:
            if isinstance(event, AgentMessageDelta):
                yield event.delta

    async def result(self) -> TurnResult[Out]:
        """The turn's result, when it is over; AgentError when it has no answer."""
        return await self._turn

    async def __aexit__(self, *exc: object) -> None:
        if not self._turn.done():
            await asyncio.sleep(0)  # its first step: before it there is no turn to interrupt
        if not self._turn.done():
            await self._conversation.interrupt()
        await asyncio.wait({self._turn})
        if not self._turn.cancelled():
            self._turn.exception()  # it was raised where the events or the result were read
        self._stream.end()
