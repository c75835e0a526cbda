"""What a session sends with every request besides the conversation (M-24, M-27)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.testing import Reply, Say
from toolrest.testing.server import ScriptedServer
from toolrest.wire.model import Usage


async def first_request(folder: Path, wire: Any, model: str) -> tuple[dict[str, Any], str]:
    async with ScriptedServer([Say("ok")]) as server:
        given = {**server.settings(wire), "model": model}
        given["tool_security.audit_log_enabled"] = False
        config = default_config(given, workspace=folder)
        async with open_session(config, ephemeral=True) as session:
            result = await session.run("go")
            assert result.error is None
    return server.requests[0].body, session.id


@pytest.mark.parametrize(
    ("model", "parallel"),
    [("gpt-5.5", True), ("gpt-5", False), ("gpt-5.1-codex", False), ("mystery", False)],
)
async def test_the_family_says_whether_calls_may_come_together(
    workspace: Path, toolrest_home: Path, model: str, parallel: bool
) -> None:
    body, thread = await first_request(workspace, "responses", model)
    assert body["tool_choice"] == "auto"
    assert body["parallel_tool_calls"] is parallel
    assert body["prompt_cache_key"] == thread
    functions = [tool for tool in body["tools"] if tool["type"] == "function"]
    assert len(functions) > 5
    assert {tool["strict"] for tool in functions} == {False}


async def test_unknown_models_are_asked_for_one_call_at_a_time_on_other_wires(
    workspace: Path, toolrest_home: Path
) -> None:
    chat, _ = await first_request(workspace, "chat", "mystery")
    assert (chat["tool_choice"], chat["parallel_tool_calls"]) == ("auto", False)
    anthropic, _ = await first_request(workspace, "anthropic", "mystery")
    assert anthropic["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


async def test_a_long_conversation_leaves_room_for_its_replies(
    workspace: Path, toolrest_home: Path
) -> None:
    long = Reply([Say("one")], usage=Usage(input=150_000, output=10, total=150_010))
    async with ScriptedServer([long, "two"]) as server:
        given = {**server.settings("anthropic"), "model": "claude-sonnet-4-20250514"}
        config = default_config(given, workspace=workspace)
        async with open_session(config, ephemeral=True) as session:
            await session.run("go")
            await session.run("on")
    first, second = (request.body["max_tokens"] for request in server.requests)
    assert first == 64_000
    assert 40_000 < second < 50_000


async def test_two_sessions_send_the_same_tools_byte_for_byte(
    workspace: Path, toolrest_home: Path
) -> None:
    bodies = [(await first_request(workspace, "responses", "gpt-5.5"))[0] for _ in range(2)]
    first, second = (json.dumps(body["tools"]) for body in bodies)
    assert first == second
