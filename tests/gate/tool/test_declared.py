"""What a function tool declares adds up, and what cannot be told is never nothing."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolrest import Effects, Toolrest, tool
from toolrest.events import Event, ToolCallDecision
from toolrest.gate.tool.declared_effects import join
from toolrest.gate.tool.tool import Tool

PATH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "spare": {"type": "string"}},
    "required": ["path"],
}


async def keys_of(workspace: Path, made: Tool, arguments: dict[str, Any]) -> tuple[str, ...]:
    """The approval keys of a call, and so what the gate took its effects to be."""
    seen: list[Event] = []
    async with Toolrest(workspace, tools=[made], on_ask="deny") as rest:
        rest.subscribe(seen.append)
        await rest.call(made.name, arguments)
    (decision, *_) = [event for event in seen if isinstance(event, ToolCallDecision)]
    return decision.keys


def calls(path: str) -> Effects:
    return Effects(calls=("c",))


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"mutating": True, "reads": "path"}, ("unknown",)),
        ({"effects": Effects(runs=(("rm",),)), "reads": "path"}, ("run:rm",)),
        ({"effects": Effects(connects=("h",)), "writes": "path"}, ("write:{}/f", "connect:h")),
        (
            {"effects": lambda path: Effects(calls=("c",)), "writes": "path"},
            ("write:{}/f", "call:c"),
        ),
        ({"effects": lambda path: Effects.none(), "mutating": True}, ("unknown",)),
    ],
)
async def test_declarations_are_joined(
    tmp_path: Path, options: dict[str, Any], keys: tuple[str, ...]
) -> None:
    @tool(**options)
    def touch(path: str) -> str:
        return path

    wanted = tuple(key.format(tmp_path) for key in keys)
    assert await keys_of(tmp_path, touch, {"path": "f"}) == wanted


def takes_dict(args: dict[str, Any]) -> str:
    return str(args)


def takes_all(**arguments: Any) -> str:
    return str(arguments)


def takes_nothing_of_it(other: str = "x", more: str = "") -> str:
    return other + more


def has_default(path: str = "default") -> str:
    return path


@pytest.mark.parametrize("function", [takes_dict, takes_all, takes_nothing_of_it, has_default])
async def test_declared_names_are_found_in_raw_arguments(
    tmp_path: Path, function: Callable[..., str]
) -> None:
    made = tool(parameters=PATH_SCHEMA, writes="path")(function)
    assert await keys_of(tmp_path, made, {"path": "f"}) == (f"write:{tmp_path}/f",)


async def test_a_raw_schema_tool_writes_nothing_in_read_only_mode(tmp_path: Path) -> None:
    @tool(parameters=PATH_SCHEMA, writes="path")
    def write(args: dict[str, Any]) -> str:
        (tmp_path / args["path"]).write_text("x")
        return "written"

    async with Toolrest(tmp_path, tools=[write], sandbox_mode="read-only") as rest:
        output = await rest.call("write", {"path": "f"})
    assert output.failure is not None
    assert not (tmp_path / "f").exists()


async def test_what_is_optional_and_left_out_is_not_touched(tmp_path: Path) -> None:
    made = tool(parameters=PATH_SCHEMA, reads="path", writes="spare")(takes_all)
    assert await keys_of(tmp_path, made, {"path": "f"}) == ()


@pytest.mark.parametrize("where", ["signature", "schema"])
async def test_a_default_counts_as_the_value(tmp_path: Path, where: str) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}
    if where == "schema":
        schema["properties"]["path"]["default"] = "default"
    function: Callable[..., str] = has_default if where == "signature" else takes_all
    made = tool(parameters=schema, writes="path")(function)
    assert await keys_of(tmp_path, made, {}) == (f"write:{tmp_path}/default",)


async def test_what_cannot_be_looked_up_is_unknown(tmp_path: Path) -> None:
    def wants_more(hidden: str, **rest: Any) -> str:
        return f"{hidden} {rest}"

    made = tool(parameters=PATH_SCHEMA, reads="hidden")(wants_more)
    assert await keys_of(tmp_path, made, {"path": "f"}) == ("unknown",)


@pytest.mark.parametrize("value", [5, {"file": "x"}, [["x"]]])
async def test_a_value_that_is_no_path_is_unknown(tmp_path: Path, value: Any) -> None:
    made = tool(parameters={"type": "object", "properties": {"p": {}}}, reads="p")(takes_all)
    assert await keys_of(tmp_path, made, {"p": value}) == ("unknown",)


def test_what_lowers_a_verdict_must_hold_for_every_part() -> None:
    confined = Effects(runs=(("ls",),), confined=True)
    assert join((confined, Effects(reads=("/a",)))).confined
    assert not join((confined, Effects.unknown())).confined
    assert not join((confined, Effects(runs=(("rm",),)))).confined
    judged = Effects(writes=("/a",), judged=True)
    assert join((judged, Effects(reads=("/b",)))).judged
    assert not join((judged, Effects(writes=("/b",)))).judged
    assert join((Effects(exclusive=True), Effects(exclusive=False))).exclusive is True


# How it runs


async def test_an_async_function_behind_a_plain_decorator_is_awaited(tmp_path: Path) -> None:
    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool(mutating=False)
    @plain
    async def slow(n: int) -> str:
        await asyncio.sleep(0)
        return f"{n} done"

    @tool(mutating=False)
    @plain
    def pieces(n: int) -> Iterator[str]:
        yield from ("a", "b") * n

    async with Toolrest(tmp_path, tools=[slow, pieces]) as rest:
        assert (await rest.call("slow", {"n": 1})).text == "1 done"
        assert (await rest.call("pieces", {"n": 2})).text == "abab"


async def test_an_async_generator_has_cleaned_up_before_the_answer(tmp_path: Path) -> None:
    steps: list[str] = []

    @tool(mutating=False)
    async def stream() -> AsyncIterator[str]:
        try:
            yield "a"
            started.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            steps.append("closed")

    started = asyncio.Event()
    async with Toolrest(tmp_path, tools=[stream]) as rest:
        call = asyncio.create_task(rest.call("stream", call_id="c"))
        await started.wait()
        output = await rest.cancel("c")
        assert steps == ["closed"]
        assert output.failure is not None
        await call


async def test_a_sync_generator_is_closed_in_a_thread(tmp_path: Path) -> None:
    closed_in: list[str] = []

    @tool(mutating=False)
    def stream() -> Iterator[Any]:
        try:
            yield "a"
            yield object()
        finally:
            closed_in.append(threading.current_thread().name)

    async with Toolrest(tmp_path, tools=[stream]) as rest:
        output = await rest.call("stream")
    assert output.failure is not None
    assert closed_in == ["toolrest-worker"]
