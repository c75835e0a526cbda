"""An agent and its servers: what the first request carries, and a tool that is looked up first."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.agent.conversation.conversation import Conversation
from toolrest.testing import ScriptedModel
from toolrest.testing.script import Call, Say

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]


def names(model: ScriptedModel, request: int) -> set[str]:
    return {str(tool.get("name")) for tool in model.requests[request].tools}


async def test_a_required_server_is_waited_for_and_others_are_not(
    open_rest: Open, fake_server: Fake
) -> None:
    servers = {
        "needed": fake_server(required=True),
        "slow": fake_server("hang", startup_timeout_sec=900.0),
    }
    model = ScriptedModel([[Call("mcp__needed__echo", {"text": "hi"})], [Say("done")]])
    async with Conversation(open_rest(servers), model) as agent:
        result = await agent.run("go")
        assert result.text == "done"
        assert "mcp__needed__echo" in names(model, 0)
        assert agent.rest.mcp is not None
        states = {status.name: status.state for status in agent.rest.mcp.status()}
        assert states["slow"] != "failed"


@pytest.mark.slow
async def test_a_required_server_is_waited_for_only_so_long(
    open_rest: Open, fake_server: Fake
) -> None:
    servers = {"needed": fake_server("hang", required=True, startup_timeout_sec=0.3)}
    model = ScriptedModel([[Say("done")]])
    async with Conversation(open_rest(servers), model) as agent:
        assert (await agent.run("go")).text == "done"
        assert agent.rest.mcp is not None
        assert [status.state for status in agent.rest.mcp.status()] == ["failed"]


async def test_a_model_looks_a_tool_up_and_calls_it(open_rest: Open, fake_server: Fake) -> None:
    script: list[Any] = [
        [Call("tool_search", {"query": "select:mcp__big__tool_123"})],
        [Call("mcp__big__tool_123", {})],
        [Say("done")],
    ]
    model = ScriptedModel(script)
    rest = open_rest(
        {"big": fake_server("many", required=True)}, settings={"model_context_window": 100_000}
    )
    async with Conversation(rest, model) as agent:
        assert (await agent.run("go")).text == "done"
    assert "tool_search" in names(model, 0)
    assert "mcp__big__tool_123" not in names(model, 0)
    assert "mcp__big__tool_123" in names(model, 1)
    assert '"tool_123"' in json.dumps(list(model.requests[2].items))


async def test_the_second_session_has_the_tools_in_its_first_request(
    open_rest: Open, fake_server: Fake
) -> None:
    servers = {"fs": fake_server()}
    async with open_rest(servers) as rest:
        await rest.wait_for_mcp()
    model = ScriptedModel([[Call("mcp__fs__echo", {"text": "hello again"})], [Say("done")]])
    async with Conversation(open_rest(servers), model) as agent:
        await agent.run("go")
    assert "mcp__fs__echo" in names(model, 0)
    assert "hello again" in json.dumps(list(model.requests[1].items))


async def test_a_server_gets_a_completion_when_the_user_says_yes(
    open_rest: Open, fake_server: Fake
) -> None:
    script: list[Any] = [
        [Call("mcp__fs__ask", {"text": "sampling/createMessage"})],
        [Say("four words for you")],
        [Say("done")],
    ]
    model = ScriptedModel(script)
    async with Conversation(open_rest({"fs": fake_server(required=True)}), model) as agent:
        assert (await agent.run("go")).text == "done"
    assert not model.requests[1].tools
    assert model.requests[1].max_output_tokens == 10
    assert "four words for you" in json.dumps(list(model.requests[2].items))
