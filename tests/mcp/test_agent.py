"""An agent and its servers: what the first request carries, and a tool that is looked up first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.conftest import FAKE

from toolrest import Agent, Toolrest
from toolrest.agent.conversation.conversation import Conversation
from toolrest.testing import ScriptedModel
from toolrest.testing.script import Call, Say

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    shutil.copy(FAKE, folder)
    return folder


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
    async with Conversation(open_rest(servers, settings={"mcp.wait": False}), model) as agent:
        result = await agent.run("go")
        assert result.text == "done"
        assert "mcp__needed__echo" in names(model, 0)
        assert agent.rest.mcp is not None
        states = {status.name: status.state for status in agent.rest.mcp.status()}
        assert states["slow"] != "failed"


def agent_of(script: Any, workspace: Path, fake_server: Fake, **settings: Any) -> Agent[str]:
    model = ScriptedModel(script)
    row = fake_server(default_tools_approval_mode="approve")
    rows = {f"mcp_servers.fs.{key}": value for key, value in row.items()}
    return Agent(model, tools=["mcp"], workspace=workspace, settings={**rows, **settings})


@pytest.mark.parametrize("how", ["run", "stream"])
async def test_an_agent_of_the_library_waits_for_its_servers(
    workspace: Path, fake_server: Fake, how: str
) -> None:
    """The first request of `run` offered no tool of a server, and said nothing."""
    script: list[Any] = [[Call("mcp__fs__echo", {"text": "hello"})], [Say("done")]]
    agent = agent_of(script, workspace, fake_server)
    if how == "run":
        assert (await agent.run("go")).text == "done"
    else:
        async with agent.stream("go") as events:
            assert "".join([piece async for piece in events.text()]) == "done"
    model = agent._model
    assert isinstance(model, ScriptedModel)
    assert "mcp__fs__echo" in names(model, 0)
    assert "hello" in json.dumps(list(model.requests[1].items))


def test_run_sync_waits_too(workspace: Path, fake_server: Fake) -> None:
    agent = agent_of([[Say("done")]], workspace, fake_server)
    assert agent.run_sync("go").text == "done"
    assert isinstance(agent._model, ScriptedModel)
    assert "mcp__fs__echo" in names(agent._model, 0)


async def test_a_call_waits_for_a_server_that_is_starting(
    workspace: Path, fake_server: Fake
) -> None:
    script: list[Any] = [[Call("mcp__fs__echo", {"text": "hello"})], [Say("done")]]
    agent = agent_of(script, workspace, fake_server, **{"mcp.wait": False})
    assert (await agent.run("go")).text == "done"
    assert isinstance(agent._model, ScriptedModel)
    assert "mcp__fs__echo" not in names(agent._model, 0)
    assert '"hello"' in json.dumps(list(agent._model.requests[1].items)[-1])


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
