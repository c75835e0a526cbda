"""Mistakes of a program's author: each is an error that says what to write, where it is made."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import toolrest
from toolrest import Agent, AgentError, ToolDefinitionError, Toolrest, tool
from toolrest.gate.tool.function_tool import FunctionTool
from toolrest.testing import ScriptedModel


class Foo:
    """A class that has no schema."""


@dataclass
class Row:
    """One that has."""

    name: str


def weather(city: str) -> str:
    """The weather in a city."""
    return city


def takes_foo(x: Foo) -> str:
    """F."""
    return str(x)


def takes_nested(x: list[dict[str, Foo]]) -> str:
    """N."""
    return str(x)


def takes_callable(x: Callable[[int], int]) -> str:
    """C."""
    return str(x)


def takes_row(x: Row | None, y: list[Path]) -> str:
    """R."""
    return str((x, y))


def raises(key: str) -> str:
    """Fail, and say the secret."""
    raise ValueError(f"bad key {key}")


@pytest.mark.parametrize("function", [takes_foo, takes_nested, takes_callable])
def test_a_type_without_a_schema_raises_where_it_is_passed(function: Any, tmp_path: Path) -> None:
    for passed in (function, tool(function)):
        with pytest.raises(ToolDefinitionError, match="parameter `x`: there is no schema"):
            Agent("openai:gpt-5.1", tools=[passed])
        with pytest.raises(ToolDefinitionError, match=r"Foo|Callable"):
            Toolrest(tmp_path, tools=[passed])
    rest = Toolrest(tmp_path, tools=[takes_row, tool(parameters={"type": "object"})(function)])
    assert {each.name for each in rest.tools} == {"takes_row", function.__name__}
    assert not rest.quarantined


def test_tools_prompts_and_approvers_of_the_wrong_kind(tmp_path: Path) -> None:
    anything: Any = weather
    with pytest.raises(ToolDefinitionError, match=r"write tools=\[weather\]"):
        Agent(ScriptedModel(["x"]), tools=anything)
    anything = tool(weather)
    with pytest.raises(ToolDefinitionError, match=r"write tools=\[weather\]"):
        Toolrest(tmp_path, tools=anything)
    number: Any = 3
    agent = Agent(ScriptedModel(["x"]), workspace=tmp_path)
    with pytest.raises(TypeError, match=r'a prompt is a text, run\("…"\), or a list of messages'):
        agent.run_sync(number)
    with pytest.raises(TypeError, match="not list"):
        agent.run_sync(["just text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"on_ask is a function .* 'deny', .*; not 3"):
        Agent(ScriptedModel(["x"]), workspace=tmp_path, on_ask=number).run_sync("go")
    with pytest.raises(TypeError, match="on_ask is a function"):
        Toolrest(tmp_path, on_ask=number)


async def test_a_stream_needs_async_with(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(["x"]), workspace=tmp_path)
    streamed: Any = agent.stream("go")
    with pytest.raises(TypeError, match=r"write: async with agent\.stream\("):
        async for _ in streamed:
            pass
    with pytest.raises(TypeError, match=r"write: async with agent\.stream\("):
        await streamed
    async with agent.stream("go") as events:
        assert (await events.result()).text == "x"


def test_agent_error_is_public() -> None:
    assert "AgentError" in toolrest.__all__
    assert issubclass(AgentError, toolrest.ToolrestError)


async def test_an_exception_in_a_tool_is_logged_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = {"MY_API_KEY": "sk-secret-0123456789abcdef"}
    with caplog.at_level(logging.ERROR, "toolrest.tools"):
        async with Toolrest(tmp_path, tools=[raises], env=env) as rest:
            output = await rest.call("raises", {"key": env["MY_API_KEY"]})
    assert "raises failed: ValueError" in output.text
    (record,) = [each for each in caplog.records if each.name == "toolrest.tools"]
    text = record.getMessage()
    assert "Traceback (most recent call last)" in text
    assert "in raises" in text
    assert env["MY_API_KEY"] not in text
    assert record.exc_info is None


PROGRAM = """
import asyncio, sys
from toolrest import Toolrest

def broken(x: int) -> str:
    "Broken."
    raise KeyError("lost")

async def main():
    async with Toolrest(sys.argv[1], tools=[broken]) as rest:
        print((await rest.call("broken", {"x": 1})).text)

asyncio.run(main())
"""


@pytest.mark.slow
def test_nothing_of_it_is_printed_by_itself(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ran.stdout == "broken failed: KeyError: 'lost'\n"
    assert ran.stderr == ""


def test_a_tool_is_called_like_its_function() -> None:
    @tool(mutating=False)
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    @tool
    async def later(text: str) -> str:
        """The same."""
        return text

    doubled: int = double(4)
    assert doubled == 8
    made: FunctionTool[[int], int] = double
    assert made.name == "double"
    said: str = asyncio.run(later("x"))
    assert said == "x"


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


async def test_a_schema_of_its_own_needs_no_type_hints(tmp_path: Path) -> None:
    def forecast(city, days=1):  # type: ignore[no-untyped-def]
        """The forecast."""
        return f"{city} {days}"

    made = tool(parameters=SCHEMA, mutating=False)(forecast)
    async with Toolrest(tmp_path, tools=[made]) as rest:
        assert (await rest.call("forecast", {"city": "Oslo", "days": 2})).text == "Oslo 2"
        wrong = await rest.call("forecast", {"city": 3})
        assert wrong.failure is not None
        assert wrong.failure.fields == ("city",)

    def misspelt(town, days=1):  # type: ignore[no-untyped-def]
        """The forecast."""

    with pytest.raises(ToolDefinitionError, match="parameter `town` is not in its schema, which"):
        tool(parameters=SCHEMA)(misspelt)
