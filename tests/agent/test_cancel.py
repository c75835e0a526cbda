"""Cancelling: the work is gone first, then there is exactly one output."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from toolrest import Context, Effects, Toolrest, tool
from toolrest.errors import RespondToModel
from toolrest.events import Event, ToolCallEnd


class Probe:
    """A tool that can be watched: whether it started, and whether its work is over."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.over = False

        @tool(mutating=False)
        async def waits() -> str:
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # cleaning up takes a moment; the answer waits for it
                self.over = True
            return "never"

        self.tool = waits


async def test_cancel_returns_the_aborted_output_once_the_work_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrest.gate.call.walk.monotonic", lambda: 1.0)  # no time passes at all
    probe = Probe()
    async with Toolrest(workspace=tmp_path, tools=[probe.tool]) as rest:
        call = asyncio.ensure_future(rest.call("waits", call_id="c"))
        await probe.started.wait()
        output = await rest.cancel("c")
        assert probe.over
        assert output.text == "aborted by user after 0.1s"
        assert output.failure is not None
        assert output.failure.kind == "aborted"
        assert output.success is None
        assert await call is output


async def test_cancelling_an_unknown_call_says_so(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path) as rest:
        with pytest.raises(RespondToModel, match="no running call has the id nope"):
            await rest.cancel("nope")


async def test_asyncio_cancellation_records_the_abort_and_is_raised_again(tmp_path: Path) -> None:
    probe = Probe()
    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path, tools=[probe.tool]) as rest:
        rest.subscribe(seen.append)
        call = asyncio.ensure_future(rest.call("waits"))
        await probe.started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert probe.over
    ends = [event for event in seen if isinstance(event, ToolCallEnd)]
    assert [event.failure for event in ends] == ["aborted"]


async def test_an_outer_timeout_works_as_usual(tmp_path: Path) -> None:
    probe = Probe()

    async def passes(limit: asyncio.Timeout) -> None:
        await probe.started.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    limit = asyncio.timeout(None)
    passing = asyncio.ensure_future(passes(limit))
    async with Toolrest(workspace=tmp_path, tools=[probe.tool]) as rest:
        with pytest.raises(TimeoutError):
            async with limit:
                await rest.call("waits")
    await passing
    assert probe.over


async def test_cancelling_a_turn_answers_running_queued_and_finished_calls(tmp_path: Path) -> None:
    from toolrest.items import FunctionCall

    probe = Probe()
    ran: list[str] = []

    @tool(mutating=False)
    async def quick() -> str:
        return "quick"

    @tool(effects=Effects(serial=("x",)))
    async def first() -> str:
        await asyncio.Event().wait()
        return ""

    @tool(effects=Effects(serial=("x",)))
    async def queued() -> str:
        ran.append("queued")
        return ""

    tools = [probe.tool, quick, first, queued]
    async with Toolrest(workspace=tmp_path, tools=tools) as rest, rest.turn() as turn:
        done = turn.start(FunctionCall("1", "quick"))
        turn.start(FunctionCall("2", "waits"))
        turn.start(FunctionCall("3", "first"))
        turn.start(FunctionCall("4", "queued"))
        await done.output()
        await probe.started.wait()
        never_entered = turn.start(FunctionCall("5", "waits"))
        answers = await turn.cancel()
        kinds = [a.output.failure.kind if a.output.failure else None for a in answers]
        assert kinds == [None, "aborted", "aborted", "aborted", "aborted"]
        assert never_entered.done
    assert not ran


async def test_a_sync_tool_sees_the_cancellation_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("threads", "call.turn"):  # how soon a thread runs again is the machine's affair
        monkeypatch.setattr(f"toolrest.gate.{module}.GRACE_SECONDS", 60)
    entered = threading.Event()
    left = threading.Event()

    @tool(mutating=False)
    def polls(ctx: Context) -> str:
        entered.set()
        wake = threading.Event()
        while not ctx.cancelled:
            wake.wait(0.01)
        left.set()
        return "too late"

    async with Toolrest(workspace=tmp_path, tools=[polls]) as rest:
        call = asyncio.ensure_future(rest.call("polls", call_id="c"))
        assert await asyncio.to_thread(entered.wait, 60)
        output = await rest.cancel("c")
        assert left.is_set()
        assert output.text.startswith("aborted by user after ")
        assert "left behind" not in output.text
        await call


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("threads", "call.turn", "call.deadlines"):
        monkeypatch.setattr(f"toolrest.gate.{module}.GRACE_SECONDS", 0.05)


async def test_a_stuck_sync_tool_is_left_behind_and_reported(
    tmp_path: Path, short_grace: None
) -> None:
    entered, release = threading.Event(), threading.Event()

    @tool(mutating=False)
    def stuck() -> str:
        entered.set()
        release.wait(60)
        return "late"

    async with Toolrest(workspace=tmp_path, tools=[stuck]) as rest:
        call = asyncio.ensure_future(rest.call("stuck", call_id="c"))
        assert await asyncio.to_thread(entered.wait, 60)
        output = await rest.cancel("c")
        release.set()
        assert "[toolrest] the work did not stop" in output.text
        assert output.failure is not None
        assert output.failure.kind == "aborted"
        await call


@pytest.mark.slow
async def test_a_coroutine_that_swallows_cancellation_is_left_behind(
    tmp_path: Path, short_grace: None
) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @tool(mutating=True)
    async def stubborn() -> str:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    ends: list[ToolCallEnd] = []
    async with Toolrest(workspace=tmp_path, tools=[stubborn], approval_policy="never") as rest:
        rest.subscribe(lambda e: ends.append(e) if isinstance(e, ToolCallEnd) else None)
        call = asyncio.ensure_future(rest.call("stubborn", call_id="c"))
        await started.wait()
        output = await rest.cancel("c")
        assert "left behind" in output.text
        # Its place in the schedule is free again, so the session goes on.
        plan = await asyncio.wait_for(rest.call("update_plan", {"plan": []}), 60)
        assert plan.success
        release.set()
        await call
    assert [end.call_id for end in ends].count("c") == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["async", "sync", "stubborn"])
async def test_a_timeout_is_a_failure_of_its_own_kind(
    tmp_path: Path, kind: str, short_grace: None
) -> None:
    release = threading.Event()

    @tool(mutating=False, timeout=0.05)
    async def slow_async() -> str:
        await asyncio.Event().wait()
        return ""

    @tool(mutating=False, timeout=0.05)
    def slow_sync(ctx: Context) -> str:
        release.wait(60)
        return ""

    @tool(mutating=False, timeout=0.05)
    async def slow_stubborn() -> str:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "late"

    tools = [slow_async, slow_sync, slow_stubborn]
    async with Toolrest(workspace=tmp_path, tools=tools) as rest:
        output = await rest.call(f"slow_{kind}")
        release.set()
    assert output.failure is not None
    assert output.failure.kind == "timed_out"
    assert output.text.startswith(f"slow_{kind} timed out after 0.05 s")


async def test_closing_the_session_ends_what_runs(tmp_path: Path) -> None:
    probe = Probe()
    rest = Toolrest(workspace=tmp_path, tools=[probe.tool])
    call = asyncio.ensure_future(rest.call("waits"))
    await probe.started.wait()
    await rest.aclose()
    assert probe.over
    assert (await call).failure is not None


async def test_one_failure_does_not_cancel_siblings(tmp_path: Path) -> None:
    go = asyncio.Event()

    @tool(mutating=False)
    async def fails() -> str:
        go.set()
        raise ValueError("no")

    @tool(mutating=False)
    async def waits_for_it() -> str:
        await go.wait()
        return "fine"

    items = [
        {"type": "function_call", "call_id": "1", "name": "waits_for_it", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "fails", "arguments": "{}"},
    ]
    async with Toolrest(workspace=tmp_path, tools=[fails, waits_for_it]) as rest:
        answers = await rest.answer(items)
    assert [a["output"] for a in answers] == ["fine", "fails failed: ValueError: no"]
