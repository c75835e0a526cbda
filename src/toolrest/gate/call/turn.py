"""A turn: calls start the moment they arrive, outputs come back in call order.

Cancelling gives every call that is still running its aborted output, once its work is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from toolrest.errors import Fatal
from toolrest.events import TurnEnded, TurnStarted
from toolrest.gate.call.hosted import record_search
from toolrest.gate.call.schedule import Place
from toolrest.gate.call.walk import Walk
from toolrest.gate.threads import GRACE_SECONDS
from toolrest.items import Answered, CallItem, ToolOutput

if TYPE_CHECKING:
    from toolrest.gate.decision.repeated_calls import LoopWatch
    from toolrest.gate.session import Session
    from toolrest.gate.tool.call import ToolCall
    from toolrest.policy.effects import Effects


class RunningCall:
    """A call that was started: its item, and its one output when it comes."""

    __slots__ = ("_output", "_task", "_waiters", "_walk", "item", "made")

    def __init__(self, item: CallItem, walk: Walk) -> None:
        self.item = item
        self.made: ToolCall | None = None
        """The call as its tool was started, once there is an output."""
        self._walk: Walk | None = walk
        self._output: ToolOutput | None = None
        self._waiters: list[asyncio.Future[ToolOutput]] = []
        walk.deliver = self._deliver
        self._task = walk.task = asyncio.get_running_loop().create_task(walk.run())
        # A task that is cancelled before its first step never enters the walk.
        self._task.add_done_callback(self._finished)

    def _deliver(self, output: ToolOutput) -> None:
        if self._output is not None:
            return
        self._output = output
        self.made = self._walk.ran if self._walk is not None else None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(output)

    def _finished(self, task: asyncio.Task[None]) -> None:
        walk, self._walk = self._walk, None  # they know each other: no work for the collector
        if self._output is None and walk is not None:
            self._deliver(walk.end(walk.aborted()))
        if not task.cancelled():
            task.exception()

    @property
    def done(self) -> bool:
        """True once there is an output."""
        return self._output is not None

    def abort(self) -> None:
        """Cancel the work. The output follows when it is gone, or after the grace without it."""
        if self.done or self._walk is None or self._walk.aborting:
            return
        self._walk.abort()
        if not self._task.cancelling():
            self._task.cancel()
        timer = asyncio.get_running_loop().call_later(GRACE_SECONDS + 0.5, self._leave_behind)
        self._task.add_done_callback(lambda _: timer.cancel())

    def _leave_behind(self) -> None:
        if self._walk is not None:
            self._walk.leave_behind()

    async def output(self) -> ToolOutput:
        """The output. If the waiting task is cancelled, the call is aborted first."""
        if self._output is not None:
            return self._output
        try:
            return await self._waiter()
        except asyncio.CancelledError:
            self.abort()
            await self.settle()
            raise

    def _waiter(self) -> asyncio.Future[ToolOutput]:
        # Each waiter has a future of its own: cancelling one must not take the others' result.
        waiter: asyncio.Future[ToolOutput] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    async def settle(self) -> None:
        """Wait for an aborted call, however often the waiting task is cancelled meanwhile."""
        while self._output is None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._waiter()


class Turn:
    """Calls that belong together. Use it as `async with rest.turn() as turn`.

    `before_mutation` is awaited once, before the first call of the turn that may change
    something, and `commit` before every such call; readers never wait for them. `prompt` is the
    user's message that the turn answers, for the list of what can be undone.
    """

    def __init__(
        self,
        session: Session,
        before_mutation: Callable[[], Awaitable[None]] | None = None,
        commit: Callable[[], Awaitable[None]] | None = None,
        loops: LoopWatch | None = None,
        prompt: str = "",
    ) -> None:
        self.id = f"turn-{next(session.turn_numbers)}"
        self.failure: Fatal | None = None
        self.loops = loops or session.loops
        self.diff = session.turn_diff()
        """The changes of all patches of the turn."""
        self._session = session
        self._prompt = prompt
        self._undo = None if session.undo is None else session.undo.turn(self.id)
        self._calls: list[RunningCall] = []
        self._by_id: dict[str, list[RunningCall]] = {}
        self._prepare = before_mutation
        self._commit = commit
        self._prepared: asyncio.Future[None] | None = None
        self._aborted = False
        self._left_behind = False
        self.on_output: Callable[[CallItem, ToolOutput], None] | None = None
        """Takes each output before its end is told, to write it down; may raise Fatal."""
        self.reaches_all = False
        """Whether calls also reach tools that are not offered: the host program makes them."""
        self.has_neighbours = False
        """Whether other agents' turns run beside it: none waits while this one's user decides."""

    def of_host(self) -> Self:
        """The turn, for calls that the host program makes by name and not a model."""
        self.reaches_all = True
        return self

    def beside_others(self) -> Self:
        """The turn, where other agents' turns run beside it: none waits while its user decides."""
        self.has_neighbours = True
        return self

    def leave_behind(self) -> None:
        """Record that a thread of a call was given up, and may still change something."""
        self._left_behind = True

    async def __aenter__(self) -> Self:
        self._session.bus.bind()
        self._session.bus.emit(TurnStarted(turn_id=self.id))
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            if exc[0] is not None:
                await self.cancel()
            else:
                await self.answers()
        finally:
            await self._settle()
            if self._undo is not None:
                if self._left_behind:
                    self._undo.give_up()
                await self._undo.after()
            self._session.bus.emit(TurnEnded(turn_id=self.id, reason=self._reason()))

    async def _settle(self) -> None:
        """Abort and await all calls: nothing of a turn outlives it."""
        for running in self._calls:
            if not running.done:
                self._aborted = True
                running.abort()
        for running in self._calls:
            await running.settle()
        if self._prepared is not None and not self._prepared.done():
            self._prepared.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._prepared

    def _reason(self) -> Literal["completed", "aborted", "failed"]:
        if self.failure is not None:
            return "failed"
        return "aborted" if self._aborted else "completed"

    def start(self, item: CallItem) -> RunningCall:
        """Start a call now; it waits by itself for calls it conflicts with."""
        self._session.bus.bind()
        call_id = item.call_id or ""
        walk = Walk(self._session, item, self, call_id, Place(self._session.scheduler))
        walk.refused = self.failure
        running = RunningCall(item, walk)
        self._calls.append(running)
        self._by_id.setdefault(call_id, []).append(running)
        return running

    def searched(self, item: Mapping[str, Any], seconds: float = 0.0) -> None:
        """Record a search that the model's own server did: it counts as a call."""
        record_search(self._session, self.id, item, seconds)

    async def answers(self) -> list[Answered]:
        """Every call of this turn with its output, in call order."""
        return [Answered(running.item, await running.output()) for running in self._calls]

    def abort(self, call_id: str) -> RunningCall | None:
        """Cancel one call; None when no call of this id is running."""
        for running in self._by_id.get(call_id, ()):
            if not running.done:
                running.abort()
                return running
        return None

    async def cancel(self) -> list[Answered]:
        """Cancel what still runs and return all outputs: nothing is left running."""
        self._aborted = True
        for running in self._calls:
            running.abort()
        return await self.answers()

    def fail(self, error: Fatal) -> None:
        """Record a fatal error of a call: its siblings finish, then the turn is over."""
        if self.failure is None:
            self.failure = error

    @contextlib.contextmanager
    def mutating(self, call: ToolCall) -> Iterator[None]:
        """Note when a call runs that may change something: undo keeps what others write."""
        if self._undo is None:
            yield
            return
        try:
            with self._undo.calling():
                yield
        finally:
            if not self._ends_with_its_call(call):
                self._undo.give_up()

    def _ends_with_its_call(self, call: ToolCall) -> bool:
        effects, runner = call.effects, self._session.runner.made
        if effects.calls or effects.is_unknown or self._session.hooks is not None:
            return False
        if runner is None:
            return not effects.runs
        if effects.runs and (call.ctx.outside or not effects.confined):
            return False
        # What a container or a virtual machine writes may come late, or by another clock.
        if effects.runs and (runner.confinement.backend or runner.confinement.external):
            return False
        return not runner.sessions.list()

    async def before_mutation(self, effects: Effects, label: str) -> None:
        """Save the workspace and prepare for a mutating call: readers never wait for this.

        The turn's own `before_mutation` runs once, before the first of them.
        """
        if self._undo is not None:
            await self._undo.before(effects, f"{self._prompt} | {label}" if self._prompt else label)
        if self._commit is not None:
            await self._commit()
        if self._prepare is None:
            return
        if self._prepared is None:
            self._prepared = asyncio.ensure_future(self._prepare())
        await asyncio.shield(self._prepared)

    async def answer(self, reply: Any) -> list[Any]:
        """Run every tool call in a reply; the items to send back, in call order.

        Of a stream (or a list of its events) the model's own message comes first. TypeError for
        what is no reply.
        """
        calls, written, searches = await self._session.replies()(reply)
        for item in searches:
            self.searched(item)
        started = [self.start(item) for item in calls]
        return written([Answered(call.item, await call.output()) for call in started])
