"""A turn: calls start the moment they arrive, outputs come back in call order.

Cancelling gives every call that is still running its aborted output, once its work is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal, Self

from toolrest.errors import Fatal
from toolrest.events import TurnEnded, TurnStarted
from toolrest.gate.threads import GRACE_SECONDS
from toolrest.gate.walk import Gate, Walk
from toolrest.items import Answered, CallItem, MalformedCall, ToolOutput


class Running:
    """A call that was started: its item, and its one output when it comes."""

    __slots__ = ("_output", "_task", "_waiters", "_walk", "item")

    def __init__(self, item: CallItem, walk: Walk) -> None:
        self.item = item
        self._walk = walk
        self._output: ToolOutput | None = None
        self._waiters: list[asyncio.Future[ToolOutput]] = []
        walk.deliver = self._deliver
        self._task = asyncio.get_running_loop().create_task(walk.run())

    def _deliver(self, output: ToolOutput) -> None:
        if self._output is not None:
            return
        self._output = output
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(output)

    def _finished(self, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step never enters the walk.
        self._deliver(self._walk.end(self._walk.aborted()))

    @property
    def done(self) -> bool:
        """True once there is an output."""
        return self._output is not None

    def abort(self) -> None:
        """Cancel the work. The output follows when it is gone, or after the grace without it."""
        if self.done or self._task.cancelling():
            return
        self._task.add_done_callback(self._finished)
        self._task.cancel()
        timer = asyncio.get_running_loop().call_later(GRACE_SECONDS + 0.5, self._leave_behind)
        self._task.add_done_callback(lambda _: timer.cancel())

    def _leave_behind(self) -> None:
        self._walk.leave_behind()

    async def output(self) -> ToolOutput:
        """The output. If the waiting task is cancelled, the call is aborted first."""
        if self._output is not None:
            return self._output
        try:
            return await self._waiter()
        except asyncio.CancelledError:
            self.abort()
            await self._settle()
            raise

    def _waiter(self) -> asyncio.Future[ToolOutput]:
        # Each waiter has a future of its own: cancelling one must not take the others' result.
        waiter: asyncio.Future[ToolOutput] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    async def _settle(self) -> None:
        """Wait for an aborted call, however often the waiting task is cancelled meanwhile."""
        while self._output is None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._waiter()


class Turn:
    """Calls that belong together. Use it as `async with rest.turn() as turn`."""

    def __init__(
        self, gate: Gate, before_mutation: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        gate.turns_made += 1
        self.id = f"turn-{gate.turns_made}"
        self.failure: Fatal | None = None
        self._gate = gate
        self._calls: list[Running] = []
        self._by_id: dict[str, Running] = {}
        self._prepare = before_mutation
        self._prepared: asyncio.Future[None] | None = None
        self._aborted = False

    async def __aenter__(self) -> Self:
        self._gate.services.bus.emit(TurnStarted(turn_id=self.id))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if exc[0] is not None:
            await self.cancel()
        else:
            await self.answers()
        self._gate.services.bus.emit(TurnEnded(turn_id=self.id, reason=self._reason()))

    def _reason(self) -> Literal["completed", "aborted", "failed"]:
        if self.failure is not None:
            return "failed"
        return "aborted" if self._aborted else "completed"

    def start(self, item: CallItem) -> Running:
        """Start a call now; it waits by itself for calls it conflicts with."""
        call_id = item.call_id or ""
        walk = Walk(self._gate, item, self, call_id)
        running = Running(item, walk)
        self._calls.append(running)
        if call_id and not isinstance(item, MalformedCall):
            self._by_id[call_id] = running
        return running

    async def answers(self) -> list[Answered]:
        """Every call of this turn with its output, in call order."""
        return [Answered(running.item, await running.output()) for running in self._calls]

    def abort(self, call_id: str) -> Running | None:
        """Cancel one call; None when no such call is running."""
        running = self._by_id.get(call_id)
        if running is None or running.done:
            return None
        running.abort()
        return running

    async def cancel(self) -> list[Answered]:
        """Cancel what still runs and return all outputs: nothing is left running."""
        self._aborted = True
        for running in self._calls:
            running.abort()
        return await self.answers()

    def fail(self, error: Fatal) -> None:
        """A call ended fatally: its siblings finish, then the turn is over."""
        if self.failure is None:
            self.failure = error

    async def before_mutation(self) -> None:
        """Once per turn, before its first mutating call: readers never wait for this."""
        if self._prepare is None:
            return
        if self._prepared is None:
            self._prepared = asyncio.ensure_future(self._prepare())
        await asyncio.shield(self._prepared)
