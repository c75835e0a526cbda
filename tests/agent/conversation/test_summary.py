"""The request for a summary: what it sends, and servers that refuse it or cut its answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import tool
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.conversation.summary import CUT
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.testing import Call, Fail, Incomplete, Reply, Say, ScriptedModel
from toolrest.testing.server import ScriptedServer
from toolrest.wire.model import Usage

Make = Callable[..., Conversation]
BIG = Usage(input=95, output=5, total=95_000)


@tool(mutating=False)
def echo(text: str) -> str:
    """Say it again."""
    return text


def called(model: list[Any]) -> list[Any]:
    """A script in which a call fills the window, and then this."""
    return [Reply([Call("echo", {"text": "a"})], usage=BIG), *model]


def last_text(request: Any) -> str:
    return str(request.items[-1]["content"][-1]["text"])


async def compacted(folder: Path, script: list[Any], wire: Any) -> list[dict[str, Any]]:
    """The bodies of the requests of a session that makes a call and is then compacted."""
    async with ScriptedServer([[Call("list_dir", {"dir_path": "."})], "done", *script]) as server:
        given = {**server.settings(wire), "model": "mystery"}
        config = default_config(given, workspace=folder)
        async with open_session(config, ephemeral=True) as session:
            assert (await session.run("go")).error is None
            assert (await session.compact()).error is None
            result = await session.run("and now?")
            assert (result.status, result.error) == ("completed", None)
    return [request.body for request in server.requests if request.body]


def wants_tools(body: Any) -> Any:
    """A gateway before Anthropic's API: it refuses a history with calls but without tools."""
    if not body.get("tools"):
        return Fail(400, "x", "Anthropic doesn't support tool calling without `tools=` param")
    return "the summary"


@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic"])
async def test_tools_go_with_a_history_that_has_calls(
    workspace: Path, toolrest_home: Path, wire: str
) -> None:
    bodies = await compacted(workspace, [wants_tools, "fine"], wire)
    assert len(bodies) == 4
    asked = bodies[2]
    assert asked["tools"] == bodies[1]["tools"]
    assert asked["tool_choice"] == ({"type": "none"} if wire == "anthropic" else "none")


async def test_a_server_that_knows_no_such_choice(workspace: Path, toolrest_home: Path) -> None:
    words = "body.tool_choice.type: Input should be 'auto', 'any' or 'tool'"
    script = [Fail(400, "invalid_request_error", words), wants_tools, "fine"]
    bodies = await compacted(workspace, script, "anthropic")
    assert "tool_choice" not in bodies[3]


@pytest.mark.parametrize("status", [400, 500])
async def test_a_server_that_refuses_the_tools_is_asked_without(agent: Make, status: int) -> None:
    refusal = Fail(status, "x", "Incompatible tool choice param submitted", retry_after=0)
    model = ScriptedModel(called([refusal, "the summary", "done"]), context_window=100_000)
    result = await agent(model, tools=[echo]).run("go")
    assert (result.text, result.error) == ("done", None)
    assert [bool(request.tools) for request in model.requests] == [True, True, False, True]
    assert last_text(model.requests[3]).endswith("the summary")


async def test_a_call_in_place_of_a_summary_is_not_run(agent: Make) -> None:
    script = called([[Call("echo", {"text": "b"})], "the summary", "done"])
    model = ScriptedModel(script, context_window=100_000)
    result = await agent(model, tools=[echo]).run("go")
    assert (result.text, result.tool_calls) == ("done", 1)
    assert not model.requests[2].tools
    assert last_text(model.requests[3]).endswith("the summary")


async def test_a_server_that_gives_no_summary_either_way_does_not_end_the_session(
    agent: Make,
) -> None:
    refusal = Fail(400, "x", "the tools are missing")
    script = called([[Call("echo", {"text": "b"})], refusal, "done"])
    model = ScriptedModel(script, context_window=100_000)
    assert (await agent(model, tools=[echo]).run("go")).text == "done"
    assert "no summary is available" in last_text(model.requests[3])


@pytest.mark.parametrize(
    ("parts", "ending"),
    [
        ([Say("half a summ"), Incomplete("max_output_tokens")], f"half a summ\n{CUT}"),
        ([Incomplete("max_output_tokens")], "(no summary is available)"),
    ],
)
async def test_a_summary_that_was_cut_is_used(agent: Make, parts: Any, ending: str) -> None:
    model = ScriptedModel(called([parts, "done"]), context_window=100_000)
    result = await agent(model, tools=[echo]).run("go")
    assert (result.text, result.error) == ("done", None)
    assert last_text(model.requests[2]).endswith(ending)


async def test_no_summary_at_the_users_wish_leaves_the_conversation(agent: Make) -> None:
    session = agent(ScriptedModel(["hello", [Incomplete("max_output_tokens")], "fine"]))
    await session.run("hello")
    result = await session.compact()
    assert (result.status, result.reason) == ("failed", "no_summary")
    assert (await session.run("go on")).text == "fine"


async def test_retries_of_a_summary_are_stream_max_retries_in_all(
    workspace: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("agent.conversation.loop", "wire.http.endpoint"):
        monkeypatch.setattr(f"toolrest.{module}.retry_delay", lambda *_: 0.0)
    script: list[Any] = ["hello", *(Fail(502, "x", "down") for _ in range(50))]
    async with ScriptedServer(script) as server:
        row = {"base_url": server.url, "wire_api": "chat", "request_max_retries": 4}
        given = {"model": "m", "model_provider": "p", "model_providers": {"p": row}}
        config = default_config(given, workspace=workspace)
        async with open_session(config, ephemeral=True) as session:
            await session.run("hello")
            result = await session.compact()
    posts = [request for request in server.requests if request.body]
    assert (result.reason, len(posts)) == ("model_server", 1 + 6)
