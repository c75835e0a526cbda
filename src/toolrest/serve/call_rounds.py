"""One `tools/call` from start to result, with any number of questions to the client's user.

A call runs in a task of its own. When it needs an approval or an answer it leaves a question;
the server asks it (by a request to the client, or by returning the question and waiting for the
client to call again) and passes the answer on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toolrest.gate.decision.repeated_calls import LoopWatch
from toolrest.items import Answered, CallItem

if TYPE_CHECKING:
    from mcp_types import ElicitRequestFormParams, ElicitResult

    from toolrest.agent.rest import Toolrest

T = TypeVar("T")


class FormQuestion(Generic[T]):
    """A form that waits to be filled in; `read` turns the result, or None, into the answer."""

    def __init__(
        self, form: Callable[[], ElicitRequestFormParams], read: Callable[[ElicitResult | None], T]
    ) -> None:
        self.form = form
        self._read = read
        self.answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def answer(self, result: ElicitResult | None) -> None:
        """Answer once; later answers change nothing."""
        if not self.answered.done():
            self.answered.set_result(self._read(result))


class CallRound:
    """A call that was started, its result, and its questions meanwhile.

    `asks`: whether the client that made it can show forms.
    """

    def __init__(self, rest: Toolrest, item: CallItem, *, asks: bool) -> None:
        self.rest = rest
        self.item = item
        self.asks = asks
        self._questions: asyncio.Queue[FormQuestion[Any]] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> Answered:
        # Clients share this session, and each has an agent of its own that notices its loops.
        async with self.rest.turn(loops=LoopWatch()).beside_others() as turn:
            return Answered(self.item, await turn.start(self.item).output())

    async def ask(self, question: FormQuestion[T]) -> T:
        """Leave a question and wait for the answer."""
        self._questions.put_nowait(question)
        return await question.answered

    async def next(self) -> Answered | FormQuestion[Any]:
        """The result, or the next question that has to be answered before it can come."""
        asked = asyncio.ensure_future(self._questions.get())
        try:
            await asyncio.wait({self._task, asked}, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else self._task.result()
        finally:
            asked.cancel()

    async def cancel(self) -> None:
        """Cancel the call and everything it started; returns when all of it has ended."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
