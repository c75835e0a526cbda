"""What goes wrong at the edges: cancellation at bad moments, odd tools, secrets in odd places."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock

from toolrest import ApprovalRequest, Context, Effects, Fatal, ToolOutput, Toolrest, tool
from toolrest.events import (
    Event,
    ToolCallBegin,
    ToolCallDecision,
    ToolCallEnd,
    ToolCallProgress,
    TurnEnded,
)
from toolrest.items import FunctionCall


@tool(mutating=False)
async def echo(text: str) -> str:
    """Say it back."""
    return text


SECRET = "canary-0123456789-abcdef"


async def test_no_input_position_lets_a_secret_reach_any_sink(
    tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    seen: list[Event] = []
    asked: list[ApprovalRequest] = []

    @tool(mutating=False)
    async def odd(ctx: Context, text: str = "") -> str:
        ctx.emit("note", {"deep": [SECRET, {SECRET: 1}]})
        ctx.progress(SECRET)
        ctx.output(SECRET)
        raise ValueError(f"bad {SECRET}")

    @tool
    def asks(what: str) -> str:
        return what

    def no(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    def call(name: str, arguments: Any, call_id: str = "c") -> dict[str, Any]:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}

    items = [
        call(SECRET, {}),
        call("odd", {SECRET: 1}),
        call("odd", {"text": 5}),
        call("odd", SECRET),
        call("odd", {"text": SECRET}, call_id=f"id-{SECRET}"),
        call("asks", {"what": SECRET}),
        call("read_file", {"file_path": f"/nope/{SECRET}", "offset": SECRET}),
        call("read_file", {"file_path": f"/nope/{SECRET}"}),
        call("exec_command", {"cmd": f"echo {SECRET}; exit 1", "login": False}),
        call("exec_command", {"cmd": "x", "justification": SECRET,
                              "sandbox_permissions": "require_escalated"}),
        call("update_plan", {"plan": [{"step": SECRET, "status": "pending"}]}),
        call("apply_patch",
             {"input": f"*** Begin Patch\n*** Add File: {SECRET}\n+x\n*** End Patch"}),
        call("apply_patch", {"input": f"*** Begin Patch\n*** Update File: {SECRET}\n@@\n-{SECRET}\n"
                                      "+y\n*** End Patch"}),
    ]  # fmt: skip
    async with Toolrest(
        workspace=tmp_path, tools=[odd, asks, "all"], on_ask=no, home=toolrest_home
    ) as rest:
        rest.subscribe(seen.append)
        answers = await rest.answer(items)
    shown = [{**answer, "call_id": ""} for answer in answers]
    assert SECRET not in json.dumps(shown)
    assert SECRET not in json.dumps([event.to_json() for event in seen])
    assert asked
    for request in asked:
        assert SECRET not in f"{request.tool} {request.arguments} {request.reason} {request.keys}"
    files = [path for path in toolrest_home.rglob("*") if path.is_file()]
    # A checkpoint holds the workspace as it is: a name there is not a tool's input or output.
    files = [path for path in files if "checkpoints" not in path.parts]
    kept = [path for path in files if os.access(path, os.R_OK)]  # blanks for masks are closed
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


async def test_cancelling_while_the_turn_ends_leaves_nothing_running(tmp_path: Path) -> None:
    ticks: list[int] = []
    started = asyncio.Event()
    ended: list[str] = []

    @tool(mutating=False)
    async def ticking() -> str:
        started.set()
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    rest = Toolrest(workspace=tmp_path, tools=[ticking])
    rest.subscribe(lambda e: ended.append(e.reason) if isinstance(e, TurnEnded) else None)

    async def work() -> None:
        async with rest.turn() as turn:
            turn.start(FunctionCall("1", "ticking"))
            turn.start(FunctionCall("2", "ticking"))

    task = asyncio.ensure_future(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    count = len(ticks)
    await asyncio.sleep(0.01)
    assert len(ticks) == count
    assert ended == ["aborted"]
    await rest.aclose()


async def test_cancelling_everything_in_the_next_tick_still_gives_every_call_an_output(
    tmp_path: Path,
) -> None:
    ends: list[ToolCallEnd] = []
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        rest.subscribe(lambda e: ends.append(e) if isinstance(e, ToolCallEnd) else None)
        call = asyncio.ensure_future(rest.call("echo", {"text": "x"}))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(call, 60)
    assert [end.failure for end in ends] == ["aborted"]


async def test_a_deadline_that_passes_during_a_cancel_changes_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("threads", "call.turn", "call.deadlines"):
        monkeypatch.setattr(f"toolrest.gate.{module}.GRACE_SECONDS", 900)
    order: list[str] = []
    started = asyncio.Event()

    @tool(mutating=False, timeout=600)
    async def cleans_up() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            clock.skip(600)
            await asyncio.sleep(0.01)  # the deadline has passed meanwhile
            order.append("clean")
        return ""

    async with Toolrest(workspace=tmp_path, tools=[cleans_up]) as rest:
        call = asyncio.ensure_future(rest.call("cleans_up", call_id="c"))
        await started.wait()
        output = await rest.cancel("c")
        order.append("answer")
        await call
    assert order == ["clean", "answer"]
    assert output.failure is not None
    assert output.failure.kind == "aborted"


async def test_a_loop_stays_stopped(tmp_path: Path) -> None:
    runs: list[int] = []

    @tool(mutating=True)
    async def same() -> str:
        runs.append(1)
        return "same"

    async with Toolrest(workspace=tmp_path, tools=[same], on_ask=lambda _: True) as rest:
        outputs = [await rest.call("same") for _ in range(20)]
        invalid = [await rest.call("read_file", {"nope": 1}) for _ in range(3)]
    assert len(runs) == 4
    assert all(output.failed for output in outputs[4:])
    assert "[toolrest] the same call" in invalid[2].text


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
async def test_a_tool_that_exits_ends_only_itself(
    tmp_path: Path, kind: str, error: BaseException
) -> None:
    @tool(mutating=False)
    async def leaves_async() -> str:
        sys.exit(3) if isinstance(error, SystemExit) else None
        return "stayed"

    @tool(mutating=False)
    def leaves_sync() -> str:
        raise error

    async with Toolrest(workspace=tmp_path, tools=[leaves_async, leaves_sync, echo]) as rest:
        output = await rest.call(f"leaves_{kind}")
        assert (await rest.call("echo", {"text": "alive"})).text == "alive"
    if kind == "sync" or isinstance(error, SystemExit):
        assert output.failure is not None
        assert output.failure.kind == "execution_failed"


async def test_a_listener_cannot_take_the_output_away(tmp_path: Path) -> None:
    def hostile(event: Event) -> None:
        raise asyncio.CancelledError

    heard: list[str] = []
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        rest.subscribe(hostile)
        rest.subscribe(lambda event: heard.append(event.type))
        output = await asyncio.wait_for(rest.call("echo", {"text": "x"}), 60)
    assert output.text == "x"
    assert "tool_call_end" in heard


async def test_a_tool_that_cancels_itself_was_not_aborted_by_the_user(tmp_path: Path) -> None:
    @tool(mutating=False)
    async def gives_up() -> str:
        raise asyncio.CancelledError

    async with Toolrest(workspace=tmp_path, tools=[gives_up]) as rest:
        output = await rest.call("gives_up")
    assert output.failure is not None
    assert output.failure.kind == "execution_failed"
    assert "aborted by user" not in output.text


async def test_an_aborted_call_that_finishes_all_the_same_is_aborted(tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool(mutating=False)
    async def swallows() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done anyway"
        return ""

    async with Toolrest(workspace=tmp_path, tools=[swallows]) as rest:
        call = asyncio.ensure_future(rest.call("swallows", call_id="c"))
        await started.wait()
        output = await rest.cancel("c")
        await call
    assert output.failure is not None
    assert output.failure.kind == "aborted"
    assert "finished all the same" in output.text


async def test_the_per_turn_gate_holds_mutating_calls_once_and_readers_never(
    tmp_path: Path,
) -> None:
    order: list[str] = []
    opened = asyncio.Event()

    async def checkpoint() -> None:
        order.append("checkpoint")
        await opened.wait()
        order.append("ready")

    @tool(effects=Effects(writes=(str(tmp_path / "f"),)))
    async def writes(name: str) -> str:
        order.append(name)
        return ""

    @tool(mutating=False)
    async def reads() -> str:
        order.append("read")
        opened.set()
        return ""

    async with Toolrest(workspace=tmp_path, tools=[writes, reads]) as rest:
        async with rest.turn(checkpoint) as turn:
            turn.start(FunctionCall("1", "writes", {"name": "w1"}))
            turn.start(FunctionCall("2", "writes", {"name": "w2"}))
            turn.start(FunctionCall("3", "reads"))
        assert set(order[:2]) == {"checkpoint", "read"}
        assert order[2:] == ["ready", "w1", "w2"]
        opened.clear()
        order.clear()

        async def left_early() -> None:
            async with rest.turn(checkpoint) as turn:
                turn.start(FunctionCall("4", "writes", {"name": "w3"}))
                await asyncio.sleep(0.05)
                raise RuntimeError("out")

        with pytest.raises(RuntimeError, match="out"):
            await left_early()
        assert "ready" not in order


async def test_calls_after_a_fatal_one_are_not_run(tmp_path: Path) -> None:
    @tool(mutating=False)
    async def dies() -> str:
        raise Fatal("gone")

    async with (
        Toolrest(workspace=tmp_path, tools=[dies, echo]) as rest,
        rest.turn() as turn,
    ):
        await turn.start(FunctionCall("1", "dies")).output()
        late = await turn.start(FunctionCall("2", "echo", {"text": "x"})).output()
        assert late.failure is not None
        assert late.failure.kind == "fatal"
        assert str(turn.failure) == "gone"


async def test_every_begin_has_its_end(tmp_path: Path) -> None:
    @tool(mutating=False)
    async def gives(what: str) -> Any:
        odd: dict[str, Any] = {
            "strings": ToolOutput(content=["a"]),  # type: ignore[list-item]
            "number": ToolOutput(content=5),  # type: ignore[arg-type]
            "none": ToolOutput(content=None),  # type: ignore[arg-type]
        }
        return odd[what]

    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path, tools=[gives]) as rest:
        rest.subscribe(seen.append)
        for what in ("strings", "number", "none", "missing"):
            answers = await rest.answer(
                {"type": "function_call", "call_id": what, "name": "gives",
                 "arguments": json.dumps({"what": what})}
            )  # fmt: skip
            assert len(answers) == 1
        await rest.call("nope")
        await rest.call("read_file", "{")
    begins = [event.call_id for event in seen if isinstance(event, ToolCallBegin)]
    ends = [event.call_id for event in seen if isinstance(event, ToolCallEnd)]
    assert begins == ends
    assert len(begins) == 6


async def test_a_tool_may_call_tools(tmp_path: Path) -> None:
    rests: list[Toolrest] = []

    @tool(effects=Effects.none(), parallel=False)
    async def outer() -> str:
        return (await rests[0].call("echo", {"text": "inner"})).text

    async with Toolrest(workspace=tmp_path, tools=[outer, echo]) as rest:
        rests.append(rest)
        output = await asyncio.wait_for(rest.call("outer"), 60)
    assert output.text == "inner"


async def test_events_from_threads_are_ordered_and_at_once(tmp_path: Path) -> None:
    @tool(mutating=False)
    def reports(ctx: Context) -> str:
        for step in range(20):
            ctx.progress(f"{threading.get_ident()} {step}")
        return "ok"

    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path, tools=[reports]) as rest:
        rest.subscribe(seen.append)
        await asyncio.gather(*(rest.call("reports") for _ in range(8)))
    assert [event.seq for event in seen] == sorted(event.seq for event in seen)
    steps: dict[str, list[int]] = {}
    for event in seen:
        if isinstance(event, ToolCallProgress):
            thread, step = event.message.split()
            steps.setdefault(f"{thread} {event.call_id}", []).append(int(step))
    assert all(found == list(range(20)) for found in steps.values())
    for event in seen:
        if isinstance(event, ToolCallEnd):
            later = [e for e in seen if e.seq > event.seq and isinstance(e, ToolCallProgress)]
            assert event.call_id not in [e.call_id for e in later]


async def test_the_event_stream_begins_at_once_and_ends_with_the_session(tmp_path: Path) -> None:
    rest = Toolrest(workspace=tmp_path, tools=[echo])
    stream = rest.events()
    await rest.call("echo", {"text": "x"})
    await rest.aclose()
    types = [event.type async for event in stream]
    assert types[0] == "turn_started"
    assert types[-1] == "turn_ended"


async def test_closing_goes_through_when_it_is_cancelled(tmp_path: Path) -> None:
    rest = Toolrest(workspace=tmp_path, tools=[echo])
    await rest.call("exec_command", {"cmd": "true", "login": False})
    closing = asyncio.ensure_future(rest.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await rest.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        rest.turn()


async def test_calls_with_one_id_can_all_be_cancelled(tmp_path: Path) -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    @tool(mutating=False)
    async def waits(name: str) -> str:
        await gates[name].wait()
        return name

    async with Toolrest(workspace=tmp_path, tools=[waits]) as rest, rest.turn() as turn:
        first = turn.start(FunctionCall("c", "waits", {"name": "a"}))
        second = turn.start(FunctionCall("c", "waits", {"name": "b"}))
        gates["b"].set()
        assert (await second.output()).text == "b"
        assert (await rest.cancel("c")).failure is not None
        assert first.done


async def test_two_spellings_of_a_path_are_one_to_the_schedule(tmp_path: Path) -> None:
    inside: list[str] = []
    most: list[int] = []

    @tool(effects=lambda path: Effects(writes=(path,)))
    async def edit(path: str) -> str:
        inside.append(path)
        most.append(len(inside))
        await asyncio.sleep(0.01)
        inside.remove(path)
        return ""

    (tmp_path / "d").mkdir()
    paths = ["a.txt", "./a.txt", str(tmp_path / "a.txt"), "d/../a.txt"]
    async with Toolrest(workspace=tmp_path, tools=[edit]) as rest, rest.turn() as turn:
        for number, path in enumerate(paths):
            turn.start(FunctionCall(str(number), "edit", {"path": path}))
    assert max(most) == 1


async def test_a_shared_output_collects_no_notes(tmp_path: Path) -> None:
    constant = ToolOutput("same")

    @tool(mutating=False)
    async def shares() -> ToolOutput:
        return constant

    async with Toolrest(workspace=tmp_path, tools=[shares]) as rest:
        for _ in range(4):
            await rest.call("shares")
    assert constant.notes == []


async def test_specs_are_the_callers_own(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=["all"]) as rest:
        specs = rest.specs("chat")
        specs.clear()
        rest.specs("chat")[0].clear()
        assert rest.specs("chat")[0]


@pytest.mark.needs("sandbox")
async def test_the_audit_names_the_sandbox_and_refused_calls_have_a_line(
    tmp_path: Path, toolrest_home: Path
) -> None:
    decisions: list[ToolCallDecision] = []
    ends: list[ToolCallEnd] = []
    async with Toolrest(workspace=tmp_path, home=toolrest_home) as rest:
        rest.subscribe(lambda e: decisions.append(e) if isinstance(e, ToolCallDecision) else None)
        rest.subscribe(lambda e: ends.append(e) if isinstance(e, ToolCallEnd) else None)
        await rest.call("exec_command", {"cmd": "true", "login": False})
        await rest.call("nope", {"a": 1})
    assert decisions[0].sandbox == "confined"
    assert ends[0].sandbox in ("bubblewrap", "landlock")
    assert (decisions[1].verdict, decisions[1].rule) == ("deny", "tool_not_found")
    assert '"a": 1' in decisions[1].arguments


async def test_a_streaming_tool_closes_before_the_answer(tmp_path: Path) -> None:
    closed: list[str] = []

    @tool(mutating=False)
    async def streams() -> AsyncIterator[str]:
        try:
            yield "one"
            raise ValueError("no")
        finally:
            closed.append("closed")

    async with Toolrest(workspace=tmp_path, tools=[streams]) as rest:
        output = await rest.call("streams")
        assert closed == ["closed"]
    assert output.failed
