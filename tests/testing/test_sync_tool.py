"""`test_sync_tool`: shows which calls run at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock

from toolrest import Toolrest, tool
from toolrest.items import FunctionCall, ToolOutput
from toolrest.testing import test_sync_tool as sync_tool


async def together(rest: Toolrest, *calls: dict[str, Any]) -> list[ToolOutput]:
    async with rest.turn() as turn:
        started = [
            turn.start(FunctionCall(f"c{number}", "test_sync_tool", arguments))
            for number, arguments in enumerate(calls)
        ]
        return [await one.output() for one in started]


async def test_calls_that_run_together_meet(tmp_path: Path) -> None:
    barrier = {"id": "a", "participants": 3, "timeout_ms": 60_000}
    async with Toolrest(tmp_path, tools=[sync_tool()]) as rest:
        assert rest.supports_parallel("test_sync_tool")
        outputs = await together(rest, *[{"barrier": barrier, "sleep_after_ms": 1}] * 3)
        assert [output.text for output in outputs] == ["ok"] * 3
        # The name is free again afterwards, for another number too.
        barrier = {**barrier, "participants": 2}
        outputs = await together(rest, *[{"barrier": barrier}] * 2)
        assert [output.text for output in outputs] == ["ok"] * 2


async def test_two_sessions_meet(tmp_path: Path) -> None:
    arguments = {"barrier": {"id": "b", "participants": 2, "timeout_ms": 60_000}}
    async with (
        Toolrest(tmp_path, tools=[sync_tool()]) as one,
        Toolrest(tmp_path, tools=[sync_tool()]) as other,
    ):
        outputs = await asyncio.gather(
            one.call("test_sync_tool", arguments), other.call("test_sync_tool", arguments)
        )
    assert [output.text for output in outputs] == ["ok", "ok"]


@pytest.mark.slow
async def test_calls_behind_one_that_runs_alone_do_not_meet(tmp_path: Path) -> None:
    @tool(mutating=False, parallel=False)
    async def alone() -> str:
        """Run alone."""
        await asyncio.sleep(0.3)
        return "done"

    barrier = {"id": "c", "participants": 2, "timeout_ms": 100}
    async with Toolrest(tmp_path, tools=[sync_tool(), alone]) as rest, rest.turn() as turn:
        first = turn.start(FunctionCall("1", "test_sync_tool", {"barrier": barrier}))
        middle = turn.start(FunctionCall("2", "alone", {}))
        last = turn.start(FunctionCall("3", "test_sync_tool", {"barrier": barrier}))
        assert (await first.output()).text == "test_sync_tool barrier wait timed out"
        assert (await middle.output()).text == "done"
        assert (await last.output()).text == "test_sync_tool barrier wait timed out"


@pytest.mark.parametrize(
    ("barrier", "words"),
    [
        ({"id": "d", "participants": 0}, "barrier participants must be greater than zero"),
        (
            {"id": "d", "participants": 1, "timeout_ms": 0},
            "barrier timeout must be greater than zero",
        ),
        ({"id": "d"}, "failed to parse function arguments: missing field `barrier.participants`"),
    ],
)
async def test_what_makes_no_sense(tmp_path: Path, barrier: dict[str, Any], words: str) -> None:
    async with Toolrest(tmp_path, tools=[sync_tool()]) as rest:
        output = await rest.call("test_sync_tool", {"barrier": barrier})
    assert output.text == words
    assert output.failure is not None


async def test_a_barrier_has_one_size(tmp_path: Path, clock: Clock) -> None:
    barrier = {"id": "e", "participants": 2, "timeout_ms": 300_000}
    async with Toolrest(tmp_path, tools=[sync_tool()]) as rest, rest.turn() as turn:
        first = turn.start(FunctionCall("1", "test_sync_tool", {"barrier": barrier}))
        other = {"barrier": {**barrier, "participants": 3}}
        second = turn.start(FunctionCall("2", "test_sync_tool", other))
        said = (await second.output()).text
        clock.skip(300)
        await first.output()
    assert said == "barrier e already registered with 2 participants"
