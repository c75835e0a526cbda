"""The scheduler: whether there may be one more call, and when it may run, by its effects.

A call waits for every earlier call that it conflicts with and for nothing else, so readers run
together, writers of one path run in call order, exclusive calls run alone, and nothing that
comes later can hold up something that came earlier.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from typing import Protocol

from toolrest.errors import Rejected
from toolrest.policy.effects import Effects


class Ticket:
    """A call's place: first in the queue, then running, then released."""

    __slots__ = (
        "_before",
        "_blockers",
        "_dependents",
        "_number",
        "_ran",
        "_ready",
        "_state",
        "effects",
        "reader",
    )

    def __init__(self, number: int, effects: Effects, reader: bool) -> None:
        self.effects = effects
        self.reader = reader
        self._number = number
        self._ran = False
        self._before: tuple[Ticket | None, dict[int, Ticket]] | None = None
        self._blockers: set[Ticket] = set()
        self._dependents: list[Ticket] = []
        self._ready: asyncio.Future[None] | None = None
        self._state = "queued"

    def __lt__(self, other: Ticket) -> bool:
        return self._number < other._number


class Quota:
    """The calls that a session has made, and the most that it may make."""

    __slots__ = ("_made", "_most")

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._made = 0

    def take(self) -> None:
        """Count one more call; Rejected where it is one too many."""
        self._made += 1
        if self._most is not None and self._made > self._most:
            raise Rejected(
                f"not run: this session may make {self._most} tool calls (max_calls_per_session)"
            )


class Scheduler:
    """Admits calls by their effects, at most `limit` at once, in the order they came."""

    def __init__(self, limit: int = 16) -> None:
        if limit < 1:
            raise ValueError("at least one call must be able to run")
        self._limit = limit
        self._running = 0
        self._count = 0
        self._barrier: Ticket | None = None
        # Open tickets since the barrier. Earlier ones are over when the barrier runs, so later
        # calls need not check them: a queue of exclusive calls stays a chain.
        self._since: dict[int, Ticket] = {}
        self._non_readers = 0
        self._waiting_for_slot: list[Ticket] = []

    def enter(self, effects: Effects) -> Ticket:
        """Take a place in the queue; the order of these calls is the order of conflicts."""
        self._count += 1
        alone = effects.runs_alone
        reader = not (effects.writes or effects.serial or alone)
        ticket = Ticket(self._count, effects, reader)
        if self._since and not (reader and self._non_readers == 0):
            for other in self._since.values():
                if alone or conflict(other.effects, effects):
                    _block(ticket, other)
        if self._barrier is not None:
            _block(ticket, self._barrier)
        if alone:
            ticket._before = (self._barrier, self._since)
            self._barrier, self._since, self._non_readers = ticket, {}, 0
        else:
            self._since[ticket._number] = ticket
            self._non_readers += not reader
        if not ticket._blockers:
            self._admit(ticket)
        return ticket

    async def wait(self, ticket: Ticket) -> None:
        """Return when the call may run. If cancelled, the ticket must still be released."""
        if ticket._state == "queued":
            ticket._ready = asyncio.get_running_loop().create_future()
            await ticket._ready

    def release(self, ticket: Ticket) -> None:
        """Give the place back, whether or not the call ever ran. Twice does no harm."""
        if ticket._state == "released":
            return
        if ticket._state == "running":
            self._running -= 1
        ticket._state = "released"
        if ticket is self._barrier:
            self._lift()
        elif self._since.pop(ticket._number, None) is not None:
            self._non_readers -= not ticket.reader
        for dependent in ticket._dependents:
            dependent._blockers.discard(ticket)
            for earlier in ticket._blockers:  # it never ran: dependents wait for its blockers
                _block(dependent, earlier)
            if not dependent._blockers and dependent._state == "queued":
                heappush(self._waiting_for_slot, dependent)
        ticket._blockers.clear()
        while self._waiting_for_slot and self._running < self._limit:
            self._start(heappop(self._waiting_for_slot))

    def _lift(self) -> None:
        """Take the barrier away. If it never ran, what was before it counts again."""
        while self._barrier is not None and self._barrier._state == "released":
            before = self._barrier._before
            if self._barrier._ran or before is None:
                self._barrier = None
                return
            self._barrier, earlier = before
            merged = {**earlier, **self._since}
            self._since = {n: t for n, t in merged.items() if t._state != "released"}
            self._non_readers = sum(not t.reader for t in self._since.values())

    def _admit(self, ticket: Ticket) -> None:
        if self._running < self._limit:
            self._start(ticket)
        else:
            heappush(self._waiting_for_slot, ticket)

    def _start(self, ticket: Ticket) -> None:
        if ticket._state != "queued":
            return
        ticket._state = "running"
        ticket._ran = True
        ticket._before = None
        self._running += 1
        if ticket._ready is not None and not ticket._ready.done():
            ticket._ready.set_result(None)


class Nests(Protocol):
    """A call whose tool may make calls."""

    ended: bool


class Place:
    """One call's place in the queue: taken, given up, and taken again behind the others.

    A call that a running tool makes shares that call's place.
    """

    __slots__ = ("_over", "_scheduler", "_ticket", "within")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ticket: Ticket | None = None
        self._over = False
        self.within: Nests | None = None

    @property
    def shared(self) -> bool:
        """Whether it is another call's place."""
        return self.within is not None and not self.within.ended

    @property
    def taken(self) -> bool:
        """Whether there is a place of its own."""
        return self._ticket is not None

    def queue(self, effects: Effects) -> None:
        """Queue up by these effects, once."""
        if self._ticket is None and not (self._over or self.shared):
            self._ticket = self._scheduler.enter(effects)

    async def take(self, effects: Effects) -> None:
        """Wait for the scheduler: calls that conflict run one after the other, in call order."""
        self.queue(effects)
        if self._ticket is not None:
            await self._scheduler.wait(self._ticket)

    def give_up(self) -> None:
        """Let others run; the place that is taken next is behind them."""
        if self._ticket is not None:
            self._scheduler.release(self._ticket)
            self._ticket = None

    def leave(self) -> None:
        """Give it up for good: work that was left behind takes none any more."""
        self._over = True
        self.give_up()

    async def change(self, effects: Effects) -> None:
        """Wait again, as the call touches something else than it seemed."""
        if self._ticket is not None:
            self.give_up()
            await self.take(effects)


def _block(ticket: Ticket, earlier: Ticket) -> None:
    if earlier._state != "released" and earlier not in ticket._blockers:
        ticket._blockers.add(earlier)
        earlier._dependents.append(ticket)


def conflict(first: Effects, second: Effects) -> bool:
    """Whether two calls must not run at the same time."""
    if first.runs_alone or second.runs_alone:
        return True
    if first.serial and second.serial and not set(first.serial).isdisjoint(second.serial):
        return True
    return (
        _overlap(first.writes, second.writes)
        or _overlap(first.writes, second.reads)
        or _overlap(first.reads, second.writes)
    )


def _overlap(paths: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether a path of one is, holds or lies in a path of the other."""
    return any(_nested(path, other) for path in paths for other in others)


def _nested(path: str, other: str) -> bool:
    if len(path) > len(other):
        path, other = other, path
    return other.startswith(path) and (
        len(path) == len(other) or path.endswith("/") or other[len(path)] == "/"
    )
