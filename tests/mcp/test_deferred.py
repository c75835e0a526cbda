"""Many tools: an index and `tool_search` in the place of their definitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from toolrest import Toolrest
from toolrest.agent.conversation.conversation import Conversation
from toolrest.secret import SafeUrl
from toolrest.testing import Call, Fail, ScriptedServer
from toolrest.wire.client import HttpModel
from toolrest.wire.provider import HOSTED, Provider
from toolrest.wire.providers import client_for

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


# Tools that come late, and what is cached before them

SEARCH = Call("tool_search", {"query": "select:big/tool_123"})


def claude(server: ScriptedServer, name: str = "claude-sonnet-5-5", **profile: Any) -> HttpModel:
    usual = replace(HOSTED, brings_tools_in=True)
    provider = Provider(
        "anthropic", SafeUrl(server.url), "anthropic", profile=replace(usual, **profile)
    )
    return client_for(provider, name, 200_000)


async def bodies(
    rest: Toolrest, script: list[Any], model: Callable[[ScriptedServer], HttpModel] = claude
) -> list[dict[str, Any]]:
    """The requests of one turn."""
    async with ScriptedServer(script) as server:
        async with Conversation(rest, model(server)) as chat:
            await rest.wait_for_mcp()
            result = await chat.run("go")
            assert result.status == "completed", result
        return [request.body for request in server.requests]


def result_of(body: dict[str, Any]) -> Any:
    """The content of the first result in the messages of a request."""
    blocks = [block for each in body["messages"] for block in each["content"]]
    return next(block["content"] for block in blocks if block["type"] == "tool_result")


@pytest.mark.slow
async def test_claude_gets_a_found_tool_where_it_was_found(
    open_rest: Open, fake_server: Fake
) -> None:
    """The form is Anthropic's published one, not recorded: what was cached before stays so."""
    rest = open_rest({"big": fake_server("many")}, settings=WINDOW)
    script = [[SEARCH], [Call("mcp__big__tool_123")], "done"]
    first, second, third = await bodies(rest, script)
    assert second["tools"][:-1] == first["tools"], "with the cache mark at the same tool"
    late = second["tools"][-1]
    assert (late["name"], late["defer_loading"]) == ("mcp__big__tool_123", True)
    assert "cache_control" not in late
    assert result_of(second) == [{"type": "tool_reference", "tool_name": "mcp__big__tool_123"}]
    assert second["system"] == first["system"]
    assert third["tools"] == second["tools"]
    assert "defer_loading" not in json.dumps([first, rest.specs("anthropic")])


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        lambda server: claude(server, brings_tools_in=False),
        lambda server: claude(server, "claude-sonnet-4-20250514"),
    ],
)
async def test_others_have_it_behind_the_tools_that_were_there(
    open_rest: Open, fake_server: Fake, model: Any
) -> None:
    rest = open_rest({"big": fake_server("many")}, settings=WINDOW)
    first, second = await bodies(rest, [[SEARCH], "done"], model)
    bare = [[{**tool, "cache_control": None} for tool in each["tools"]] for each in (first, second)]
    assert bare[1][: len(bare[0])] == bare[0]
    assert second["tools"][-1]["name"] == "mcp__big__tool_123"
    assert "cache_control" in second["tools"][-1]
    assert "defer_loading" not in json.dumps(second)
    assert json.loads(result_of(second))["tools"][0]["name"] == "mcp__big__tool_123"


@pytest.mark.slow
async def test_a_server_that_does_not_know_the_form_is_asked_again_without_it(
    open_rest: Open, fake_server: Fake
) -> None:
    refusal = Fail(
        400, "invalid_request_error", "tools.9.defer_loading: Extra inputs are not permitted"
    )
    rest = open_rest({"big": fake_server("many")}, settings=WINDOW)
    *_, refused, again = await bodies(rest, [[SEARCH], refusal, "done"])
    assert "defer_loading" in json.dumps(refused)
    assert "defer_loading" not in json.dumps(again)
    assert json.loads(result_of(again))["tools"]


@pytest.mark.slow
async def test_a_found_tool_that_is_gone_is_not_referred_to(
    open_rest: Open, fake_server: Fake
) -> None:
    """A reference to a tool that the request does not have is an error of the API."""
    rest = open_rest({"big": fake_server("many")}, settings=WINDOW)
    async with ScriptedServer([[SEARCH], "done", "again"]) as server:
        async with Conversation(rest, claude(server)) as chat:
            await rest.wait_for_mcp()
            await chat.run("go")
            tool = rest.session.registry.get("mcp__big__tool_123")
            assert tool is not None
            tool.offered = False
            rest.session.registry.touch()
            assert (await chat.run("on")).status == "completed"
        last = server.requests[-1].body
    assert "tool_reference" not in json.dumps(last)
    assert json.loads(result_of(last))["tools"][0]["name"] == "mcp__big__tool_123"


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_the_other_wires_have_a_late_tool_last(
    open_rest: Open, fake_server: Fake, wire: Any
) -> None:
    def model(server: ScriptedServer) -> HttpModel:
        return client_for(Provider("p", SafeUrl(server.url), wire), "m", 200_000)

    rest = open_rest({"big": fake_server("many")}, settings=WINDOW)
    first, second = await bodies(rest, [[SEARCH], "done"], model)
    assert second["tools"][:-1] == first["tools"]
    assert "mcp__big__tool_123" in json.dumps(second["tools"][-1])
    assert "loaded_tools" not in json.dumps(second)


@pytest.mark.slow
async def test_a_tool_that_a_server_has_later_comes_last(
    open_rest: Open, fake_server: Fake
) -> None:
    """It stood in the middle of what was cached, by its name; so do those of a slow server."""
    rows = {"a": fake_server(default_tools_approval_mode="approve"), "b": fake_server()}
    rest = open_rest(rows)
    async with ScriptedServer([[Call("mcp__a__grow")], "one", "two"]) as server:
        async with Conversation(rest, claude(server)) as chat:
            await rest.wait_for_mcp()
            await chat.run("go")
            async with asyncio.timeout(20):
                while "mcp__a__grown" not in {tool.name for tool in rest.tools}:
                    await asyncio.sleep(0.01)
            await chat.run("on")
        first, *_, last = (request.body["tools"] for request in server.requests)
    names = [[tool["name"] for tool in each] for each in (first, last)]
    assert names[1] == [*names[0], "mcp__a__grown"]
    assert "defer_loading" not in json.dumps(last), "no output has told of it"
