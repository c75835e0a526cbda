"""One `tools/call` from start to result, however many rounds of questions lie between.

A call runs in a task of its own. When it needs somebody's yes it leaves a question; whoever
serves the client puts it (by a request of the server's, or by handing the question back and
waiting for the client to call again) and gives the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from toolrest.gate.approval import Answer, ApprovalRequest
from toolrest.items import Answered, CallItem

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest


class Question:
    """An approval that waits for its answer."""

    def __init__(self, request: ApprovalRequest) -> None:
        self.request = request
        self.answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answer(self, answer: Answer) -> None:
        """Answer once; later answers change nothing."""
        if not self.answered.done():
            self.answered.set_result(answer)


class Call:
    """A call that was started, its result, and what it asks meanwhile."""

    def __init__(self, rest: Toolrest, item: CallItem) -> None:
        self.rest = rest
        self.item = item
        self._questions: asyncio.Queue[Question] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> Answered:
        async with self.rest.turn() as turn:
            return Answered(self.item, await turn.start(self.item).output())

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Leave a question and wait for the answer."""
        question = Question(request)
        self._questions.put_nowait(question)
        return await question.answered

    async def next(self) -> Answered | Question:
        """The result, or the next question that has to be answered before it can come."""
        asked = asyncio.ensure_future(self._questions.get())
        try:
            await asyncio.wait({self._task, asked}, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else self._task.result()
        finally:
            asked.cancel()

    async def cancel(self) -> None:
        """End the call and everything it started; returns when that is gone."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
