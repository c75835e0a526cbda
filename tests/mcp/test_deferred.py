"""Many tools: an index and `tool_search` in the place of their definitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolrest import Toolrest

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]
WINDOW = {"model_context_window": 100_000}


@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic"])
async def test_five_hundred_tools_stay_within_the_budget(
    open_rest: Open, fake_server: Fake, wire: Any
) -> None:
    async with open_rest({"big": fake_server("many")}, settings=WINDOW) as rest:
        await rest.wait_for_mcp()
        before = rest.specs(wire)
        text = json.dumps(before)
        assert "tool_search" in text
        assert "mcp__big__tool_499" in text  # the index names them all
        without = [spec for spec in before if "tool_search" not in json.dumps(spec)]
        assert len(text) - len(json.dumps(without)) < 0.10 * 100_000 * 4
        found = json.loads((await rest.call("tool_search", {"query": "select:big/tool_123"})).text)
        assert [tool["name"] for tool in found["tools"]] == ["mcp__big__tool_123"]
        after = rest.specs(wire)
        assert len(after) == len(before) + 1
        assert (await rest.call("mcp__big__tool_123")).text == "tool_123"
        # What was there before is still there, in the same order.
        assert [spec for spec in after if spec in before] == before


async def test_a_search_finds_by_words(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"big": fake_server("many")}, settings=WINDOW) as rest:
        await rest.wait_for_mcp()
        output = await rest.call("tool_search", {"query": "tool 042", "limit": 3})
        names = [tool["name"] for tool in json.loads(output.text)["tools"]]
        assert names[0] == "mcp__big__tool_042"
        assert len(names) == 3
        nothing = await rest.call("tool_search", {"query": "zebra"})
        assert nothing.failed


async def test_few_tools_and_chosen_servers_are_always_there(
    open_rest: Open, fake_server: Fake
) -> None:
    rows = {"big": fake_server("many"), "own": fake_server(always_load=True)}
    async with open_rest(rows, settings=WINDOW) as rest:
        await rest.wait_for_mcp()
        names = {tool.name for tool in rest.tools}
        assert "mcp__own__echo" in names
        assert "mcp__big__tool_001" not in names
    async with open_rest({"own": fake_server()}, settings=WINDOW) as rest:
        await rest.wait_for_mcp()
        names = {tool.name for tool in rest.tools}
        assert "mcp__own__echo" in names
        assert "tool_search" not in names
