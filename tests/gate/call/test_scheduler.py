"""The scheduler against a sequential model: the same results, with as much at once as allowed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.gate.call.schedule import Scheduler, conflict
from toolrest.policy.effects import Effects

PATHS = ("/w", "/w/a", "/w/b", "/w/a/x", "/wide")


@dataclass
class Op:
    effects: Effects
    pauses: int
    cancelled: bool
    lingers: int = 0
    """How long a cancelled call keeps its place in the queue before it gives it back."""


paths = st.lists(st.sampled_from(PATHS), max_size=2, unique=True).map(tuple)
effects = st.one_of(
    st.builds(Effects, reads=paths, writes=paths),
    st.builds(Effects, serial=st.just(("plan",))),
    st.just(Effects.unknown()),
    st.just(Effects.none()),
    st.builds(Effects, writes=paths, exclusive=st.just(False)),
)
ops = st.lists(
    st.builds(Op, effects, st.integers(0, 4), st.booleans(), st.integers(0, 6)), max_size=24
)


def sequential(batch: list[Op]) -> tuple[list[object], dict[str, list[int]]]:
    files: dict[str, list[int]] = {path: [] for path in PATHS}
    plan: list[int] = []
    seen: list[object] = []
    for number, op in enumerate(batch):
        if op.cancelled:
            seen.append("cancelled")
            continue
        seen.append([list(files[p]) for p in op.effects.reads])
        for path in op.effects.writes:
            files[path].append(number)
        if op.effects.serial:
            plan.append(number)
    files["plan"] = plan
    return seen, files


async def scheduled(batch: list[Op], limit: int) -> tuple[list[object], dict[str, list[int]]]:
    scheduler = Scheduler(limit)
    files: dict[str, list[int]] = {path: [] for path in (*PATHS, "plan")}
    running: list[Op] = []

    async def call(number: int, op: Op) -> object:
        ticket = scheduler.enter(op.effects)
        try:
            if op.cancelled:
                for _ in range(op.lingers):
                    await asyncio.sleep(0)
                return "cancelled"
            await scheduler.wait(ticket)
            assert not any(conflict(other.effects, op.effects) for other in running)
            running.append(op)
            assert len(running) <= limit
            seen = [list(files[p]) for p in op.effects.reads]
            targets = [*op.effects.writes, *op.effects.serial]
            before = {path: list(files[path]) for path in targets}
            for _ in range(op.pauses):
                await asyncio.sleep(0)
            for path in targets:  # a lost update would show: written back from the first look
                files[path] = [*before[path], number]
            running.remove(op)
            return seen
        finally:
            scheduler.release(ticket)

    tasks = [asyncio.ensure_future(call(number, op)) for number, op in enumerate(batch)]
    return [await task for task in tasks], files


@given(ops, st.integers(1, 6))
def test_equals_sequential_execution(batch: list[Op], limit: int) -> None:
    assert asyncio.run(scheduled(batch, limit)) == sequential(batch)


async def test_readers_run_together() -> None:
    scheduler = Scheduler()
    together = asyncio.Barrier(8)

    async def reader() -> None:
        ticket = scheduler.enter(Effects(reads=("/w/a",)))
        await scheduler.wait(ticket)
        await together.wait()  # passes only if all eight are inside at once
        scheduler.release(ticket)

    async with asyncio.timeout(60):
        await asyncio.gather(*(reader() for _ in range(8)))


async def test_a_queued_writer_is_not_overtaken_by_later_readers() -> None:
    scheduler = Scheduler()
    order: list[str] = []

    async def call(name: str, effects: Effects, hold: asyncio.Event | None = None) -> None:
        ticket = scheduler.enter(effects)
        await scheduler.wait(ticket)
        order.append(name)
        if hold is not None:
            await hold.wait()
        scheduler.release(ticket)

    hold = asyncio.Event()
    reads = Effects(reads=("/w/a",))
    tasks = [asyncio.ensure_future(call("first", reads, hold))]
    await asyncio.sleep(0)
    tasks.append(asyncio.ensure_future(call("writer", Effects(writes=("/w/a",)))))
    tasks.append(asyncio.ensure_future(call("late reader", reads)))
    tasks.append(asyncio.ensure_future(call("unrelated", Effects(reads=("/other",)))))
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(*tasks)
    assert order.index("writer") < order.index("late reader")
    assert order.index("unrelated") < order.index("writer")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Effects(writes=("/w/a",)), Effects(reads=("/w/a/x",)), True),
        (Effects(writes=("/w/a",)), Effects(reads=("/w/ab",)), False),
        (Effects(reads=("/",)), Effects(writes=("/w/a",)), True),
        (Effects(reads=("/w/a",)), Effects(reads=("/w/a",)), False),
        (Effects(connects=("example.org",)), Effects(connects=("example.org",)), False),
        (Effects(calls=("s/t",)), Effects.none(), True),
        (Effects(calls=("s/t",), exclusive=False), Effects.none(), False),
        (Effects(runs=(("ls",),)), Effects(reads=("/w/a",)), True),
    ],
)
def test_conflicts(first: Effects, second: Effects, expected: bool) -> None:
    assert conflict(first, second) is expected
    assert conflict(second, first) is expected


async def test_a_long_queue_of_exclusive_calls_stays_a_chain() -> None:
    scheduler = Scheduler()
    tickets = [scheduler.enter(Effects.unknown()) for _ in range(5_000)]
    assert sum(len(ticket._blockers) for ticket in tickets) == 4_999
    for ticket in tickets:
        await scheduler.wait(ticket)
        scheduler.release(ticket)


async def test_a_cancelled_exclusive_call_does_not_let_conflicting_ones_meet() -> None:
    scheduler = Scheduler()
    writes = Effects(writes=("/w/a",))
    running = scheduler.enter(writes)
    barrier = scheduler.enter(Effects.unknown())
    later = scheduler.enter(writes)
    scheduler.release(barrier)
    assert later._state == "queued"
    scheduler.release(running)
    assert later._state == "running"


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Scheduler(0)
