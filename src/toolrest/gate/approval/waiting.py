"""Requests that wait for a person, so that a second front end can answer them, too.

The session's own approver asks as ever. The first answer ends the other question: an answer
from elsewhere cancels the approver's, an answer of the approver takes the request off the list.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from time import monotonic, time
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from toolrest.events import AnsweredElsewhere
from toolrest.gate.approval.request import ApprovalRequest, Review

if TYPE_CHECKING:
    from toolrest.gate.approval.user_questions import UserQuestions
    from toolrest.gate.bus import Bus

Asks: TypeAlias = "ApprovalRequest | UserQuestions"


class WaitingRequest(Struct, eq=False):
    """An approval request or a model's questions that a person has not answered yet."""

    asked: Asks
    answer: asyncio.Future[Any]
    """The answer from elsewhere: a Review, or answers by the question's id."""
    counted: asyncio.Future[bool]
    """Whether that answer was the first."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    created: float = field(default_factory=time)
    appeared: float = field(default_factory=monotonic)


class WaitingRequests:
    """The requests of one session that wait for a person, while another front end watches them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._requests: dict[str, WaitingRequest] = {}
        self._watchers: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Answer from elsewhere, too, from now on; `changed` is called on every change.

        Returns a function that ends this.
        """
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def _changed(self) -> None:
        for changed in self._watchers:
            changed()

    def listed(self) -> list[WaitingRequest]:
        """The requests that wait, the oldest first."""
        return list(self._requests.values())

    def get(self, identity: str) -> WaitingRequest | None:
        """One request by its id."""
        return self._requests.get(identity)

    async def first(self, asked: Asks, own: Awaitable[Any]) -> Any:
        """Wait for the first answer: of the session's own front end, or from elsewhere."""
        if not self._watchers:
            return await own
        loop = asyncio.get_running_loop()
        request = WaitingRequest(asked, loop.create_future(), loop.create_future())
        front = asyncio.ensure_future(own)
        self._requests[request.id] = request
        self._changed()
        try:
            await asyncio.wait({front, request.answer}, return_when=asyncio.FIRST_COMPLETED)
            if not front.done():
                front.cancel()
                await asyncio.wait({front})
            if not (front.cancelled() and request.answer.done()):
                return front.result()
            request.counted.set_result(True)
            self._bus.emit(_event(asked, request.answer.result()))
            return request.answer.result()
        finally:
            del self._requests[request.id]
            if not front.done():  # the turn was interrupted: the question goes first
                front.cancel()
                await asyncio.wait({front})
            if not request.counted.done():
                request.counted.set_result(False)
            self._changed()

    async def give(self, request: WaitingRequest, answer: Any) -> bool:
        """Answer a request from elsewhere; whether this answer was the first."""
        if request.answer.done() or request.counted.done():
            return False
        request.answer.set_result(answer)
        return await asyncio.shield(request.counted)


def _event(asked: Asks, answer: Any) -> AnsweredElsewhere:
    from toolrest.gate.approval.user_questions import UserQuestions  # few sessions ask any

    if isinstance(asked, UserQuestions):
        return AnsweredElsewhere(call_id=asked.call_id, answer="answered", turn_id=asked.turn_id)
    given: Review = answer
    return AnsweredElsewhere(
        call_id=asked.call_id, answer=given.answer, note=given.note, turn_id=asked.turn_id
    )
