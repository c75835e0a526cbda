"""Names of tools that no API takes: legal when they are sent, whatever a model has called."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agent.conversation.test_retries import Open, opened
from tests.wire.conftest import user

from toolrest import tool
from toolrest.config.schema.families import ModelWire
from toolrest.secret import SafeUrl
from toolrest.testing import Call, Freeform, Reply, ScriptedServer
from toolrest.testing.checks import problems
from toolrest.wire.model import ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for

__all__ = ["opened"]

WIRES: tuple[ModelWire, ...] = ("responses", "chat", "anthropic")


@tool(mutating=False)
def format_code() -> str:
    """Format code."""
    return "formatted"


def names(wire: ModelWire, body: Any) -> list[str]:
    if wire == "responses":
        return [item["name"] for item in body["input"] if "name" in item]
    if wire == "chat":
        calls = [each.get("tool_calls", []) for each in body["messages"]]
        return [call["function"]["name"] for part in calls for call in part]
    blocks = [block for each in body["messages"] for block in each["content"]]
    return [block["name"] for block in blocks if block["type"] == "tool_use"]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_name_with_a_slash_a_dot_or_a_blank_is_sent_as_one_that_is_offered(
    opened: Open, wire: ModelWire
) -> None:
    """On the Responses API every later request of the session was refused because of it."""
    called: list[Any] = [
        Call("github/format_code"),
        Call("functions.read_file", {"path": "x"}),
        Call("container.run it", {"cmd": "true"}),
        Freeform("my patch", "x"),
        Call(""),
    ]
    async with ScriptedServer([Reply(called), "done", "more"]) as server:
        session = opened(server, wire)
        format_code.mcp = ("github", "format_code")
        session.rest.add_tool(format_code)
        assert (await session.run("go")).text == "done"
        assert (await session.run("go on")).text == "more"
    assert server.refused == []
    wanted = ["mcp__github__format_code", "read_file", "container_run_it", "my_patch", "unknown"]
    for request in server.requests[1:]:
        assert names(wire, request.body) == wanted
    assert "formatted" in json.dumps(server.requests[1].body)


def test_names_of_older_sessions_are_made_legal_too() -> None:
    items = [
        user("go"),
        {"type": "function_call", "name": "a/b", "arguments": "{}", "call_id": "c"},
        {"type": "custom_tool_call", "name": "a.b", "input": "x", "call_id": "d"},
    ]
    provider = Provider("p", SafeUrl("http://127.0.0.1:1"), "responses")
    body = json.loads(client_for(provider, "m").body(ModelRequest("m", items)))
    assert names("responses", body) == ["a_b", "a_b"]
    assert list(problems("responses", body)) == []
    assert list(problems("responses", {"model": "m", "input": items})) != []
