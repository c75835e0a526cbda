"""Dynamic tools: the client's own, called through events or a callback."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.errors import ToolDefinitionError
from toolrest.events import DynamicToolCallRequest, Event
from toolrest.items import FunctionCall, Image
from toolrest.tools.dynamic import DynamicCall

SPEC: dict[str, Any] = {
    "name": "lookup",
    "description": "Look something up.",
    "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}},
}


async def test_answered_through_events(tmp_path: Path) -> None:
    async with Toolrest(tmp_path, dynamic_tools=[SPEC]) as rest:

        def hear(event: Event) -> None:
            if isinstance(event, DynamicToolCallRequest):
                assert event.tool == "lookup"
                assert event.turn_id
                found = event.arguments["key"]
                rest.respond(event.call_id, f"found {found}", success=found != "bad")

        rest.subscribe(hear)
        good = await rest.call("lookup", {"key": "a"})
        bad = await rest.call("lookup", {"key": "bad"})
    assert (good.text, good.success, good.failure) == ("found a", True, None)
    assert (bad.text, bad.success) == ("found bad", False)


async def test_answered_from_another_thread(tmp_path: Path) -> None:
    async with Toolrest(tmp_path, dynamic_tools=[SPEC]) as rest:

        def hear(event: Event) -> None:
            if isinstance(event, DynamicToolCallRequest):
                threading.Thread(target=rest.respond, args=(event.call_id, "late")).start()

        rest.subscribe(hear)
        assert (await rest.call("lookup", {})).text == "late"


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_answered_by_a_callback(tmp_path: Path, asynchronous: bool) -> None:
    calls: list[DynamicCall] = []

    def answer(call: DynamicCall) -> Any:
        calls.append(call)
        return {"output": "said", "success": True}

    async def later(call: DynamicCall) -> Any:
        await asyncio.sleep(0)
        return answer(call)

    handler = later if asynchronous else answer
    async with Toolrest(tmp_path, dynamic_tools=[SPEC], on_dynamic_call=handler) as rest:
        assert (await rest.call("lookup", '{"key": "a"}')).text == "said"
    assert calls[0].arguments == {"key": "a"}
    assert calls[0].tool == "lookup"


async def test_answers_of_all_kinds(tmp_path: Path) -> None:
    answers: list[Any] = [
        "plain",
        {"contentItems": [{"type": "inputText", "text": "t"}, {"imageUrl": "data:image/png,x"}]},
        {"contentItems": [7]},
        None,
        {"success": True},
    ]  # fmt: skip
    async with Toolrest(
        tmp_path, dynamic_tools=[SPEC], on_dynamic_call=lambda call: answers[call.arguments["at"]]
    ) as rest:
        assert (await rest.call("lookup", {"at": 0})).text == "plain"
        mixed = await rest.call("lookup", {"at": 1})
        assert isinstance(mixed.content, list)
        assert isinstance(mixed.content[1], Image)
        for at in (2, 3, 4):
            output = await rest.call("lookup", {"at": at})
            assert output.text == "the client's answer to lookup is not valid"
            assert output.failure is not None


async def test_arguments_are_any_json(tmp_path: Path) -> None:
    async with Toolrest(
        tmp_path, dynamic_tools=[SPEC], on_dynamic_call=lambda call: repr(call.arguments)
    ) as rest:
        for text, value in (("[1]", "[1]"), ("7", "7"), ("null", "None"), ('{"a": 1}', "{'a': 1}")):
            assert (await rest.call("lookup", text)).text == value
        bad = await rest.call("lookup", "{")
        assert bad.failure is not None
        assert bad.failure.kind == "input_invalid"


async def test_a_callback_that_fails_is_an_answer(tmp_path: Path) -> None:
    def fail(call: DynamicCall) -> Any:
        raise ValueError("broken")

    async with Toolrest(tmp_path, dynamic_tools=[SPEC], on_dynamic_call=fail) as rest:
        output = await rest.call("lookup", {})
    assert output.text == "lookup failed: ValueError: broken"


async def test_closing_and_cancelling_end_the_wait(tmp_path: Path) -> None:
    rest = Toolrest(tmp_path, dynamic_tools=[SPEC])
    asked = asyncio.Event()
    rest.subscribe(lambda event: asked.set() if isinstance(event, DynamicToolCallRequest) else None)
    running = asyncio.ensure_future(rest.call("lookup", {}, call_id="c"))
    await asyncio.wait_for(asked.wait(), 60)
    output = await rest.cancel("c")
    assert output.failure is not None
    assert output.failure.kind == "aborted"
    await running
    with pytest.raises(KeyError):
        rest.respond("c", "too late")
    asked.clear()
    running = asyncio.ensure_future(rest.call("lookup", {}))
    await asyncio.wait_for(asked.wait(), 60)
    await rest.aclose()
    output = await asyncio.wait_for(running, 60)
    assert output.text == "dynamic tool call was cancelled before receiving a response"


async def test_nobody_to_answer(tmp_path: Path) -> None:
    async with Toolrest(tmp_path, tools=["all"]) as rest:
        with pytest.raises(KeyError, match="no dynamic tools"):
            rest.respond("x", "y")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([{"name": ""}], "dynamic tool name must not be empty"),
        ([{}], "dynamic tool name must not be empty"),
        ([{"name": " a"}], "dynamic tool name has leading/trailing whitespace:  a"),
        ([{"name": "mcp"}], "dynamic tool name is reserved: mcp"),
        ([{"name": "mcp__a__b"}], "dynamic tool name is reserved: mcp__a__b"),
        ([{"name": "a"}, {"name": "a"}], "duplicate dynamic tool name: a"),
        ([{"name": "a", "inputSchema": 7}], "dynamic tool input schema is not supported for a: "),
        (
            [{"name": "a", "inputSchema": {"type": "string"}}],
            "dynamic tool input schema is not supported for a: ",
        ),
    ],
)
def test_name_rules(tmp_path: Path, specs: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Toolrest(tmp_path, dynamic_tools=specs)
    assert str(caught.value).startswith(words)


async def test_offered_once_on_every_wire_and_over_a_built_in(tmp_path: Path) -> None:
    own = {**SPEC, "name": "list_dir"}
    async with Toolrest(
        tmp_path, dynamic_tools=[SPEC, own], on_dynamic_call=lambda call: f"mine: {call.tool}"
    ) as rest:
        names = [spec["name"] for spec in rest.specs("responses")]
        assert names.count("list_dir") == names.count("lookup") == 1
        spec = next(s for s in rest.specs("chat") if s["function"]["name"] == "lookup")
        assert spec["function"]["parameters"]["properties"]["key"]["type"] == "string"
        assert (await rest.call("list_dir", {"dir_path": "."})).text == "mine: list_dir"
        assert not rest.supports_parallel("lookup")
        row = next(row for row in rest.table() if row["name"] == "lookup")
        assert row["mutating"]


async def test_calls_run_one_after_the_other(tmp_path: Path) -> None:
    running = 0
    most = 0

    async def answer(call: DynamicCall) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return "done"

    async with Toolrest(
        tmp_path, dynamic_tools=[SPEC], on_dynamic_call=answer
    ) as rest, rest.turn() as turn:  # fmt: skip
        started = [turn.start(FunctionCall(str(n), "lookup", {"n": n})) for n in range(3)]
        for one in started:
            assert (await one.output()).text == "done"
    assert most == 1


@pytest.mark.parametrize("mode", ["untrusted", "auto", "strict", "on-request", "never"])
async def test_modes_that_ask_about_everything_ask(tmp_path: Path, mode: str) -> None:
    async with Toolrest(
        tmp_path, approval_policy=mode, dynamic_tools=[SPEC], on_dynamic_call=lambda call: "ran"
    ) as rest:
        output = await rest.call("lookup", {})
    assert (output.text == "ran") is (mode in ("on-request", "never"))
