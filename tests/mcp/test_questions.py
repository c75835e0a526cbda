"""What servers ask of us: input from the user, a completion, the roots."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock
from tests.mcp.conftest import call_too_slow

from toolrest import Toolrest
from toolrest.agent.mcp.server_requests import ServerQuestions, filled
from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.mcp.errors import McpError

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]


def approver(asked: list[ApprovalRequest], answer: Any) -> Any:
    def approve(request: ApprovalRequest) -> Any:
        asked.append(request)
        return True if request.tool.startswith("mcp__") else answer

    return approve


@pytest.mark.parametrize(
    ("answer", "policy", "got"),
    [
        (True, "on-request", {"action": "accept", "content": {"ok": True}}),
        (False, "on-request", {"action": "decline"}),
        (True, "never", {"action": "decline"}),
    ],
)
async def test_elicitation_goes_to_the_approver(
    open_rest: Open, fake_server: Fake, answer: bool, policy: str, got: dict[str, Any]
) -> None:
    asked: list[ApprovalRequest] = []
    rest = open_rest({"fs": fake_server()}, on_ask=approver(asked, answer), approval_policy=policy)
    async with rest:
        await rest.wait_for_mcp()
        assert json.loads((await rest.call("fs/ask")).text) == got
    questions = [request for request in asked if request.tool == "mcp_elicitation"]
    assert bool(questions) is (policy != "never")
    assert all("really?" in request.reason for request in questions)


async def test_a_person_who_thinks_does_not_time_a_call_out(
    open_rest: Open, fake_server: Fake, clock: Clock
) -> None:
    async def slow(request: ApprovalRequest) -> bool:
        if request.tool == "mcp_elicitation":
            clock.skip(100)
            await asyncio.sleep(0.01)
        return True

    async with open_rest({"fs": fake_server(tool_timeout_sec=60.0)}, on_ask=slow) as rest:
        await rest.wait_for_mcp()
        answer = await rest.call("fs/ask")
        assert json.loads(answer.text)["action"] == "accept"
        await call_too_slow(rest, clock)


async def test_nobody_there_is_a_no(open_rest: Open, fake_server: Fake) -> None:
    row = fake_server(default_tools_approval_mode="approve")
    async with open_rest({"fs": row}, on_ask="deny") as rest:
        await rest.wait_for_mcp()
        assert json.loads((await rest.call("fs/ask")).text) == {"action": "decline"}


async def test_sampling_needs_a_yes_and_a_model(open_rest: Open, fake_server: Fake) -> None:
    asked: list[ApprovalRequest] = []
    ask = {"text": "sampling/createMessage"}
    async with open_rest({"fs": fake_server()}, on_ask=approver(asked, True)) as rest:
        await rest.wait_for_mcp()
        refused = json.loads((await rest.call("fs/ask", ask)).text)
        assert "no model is available" in refused["message"]

        async def sampler(server: str, params: dict[str, Any]) -> dict[str, Any]:
            assert (server, params["maxTokens"]) == ("fs", 10)
            content = {"type": "text", "text": "completed"}
            return {"role": "assistant", "content": content, "model": "m"}

        rest.sample_with(sampler)
        made = json.loads((await rest.call("fs/ask", ask)).text)
        assert made["content"]["text"] == "completed"
    assert [request.tool for request in asked if request.tool == "mcp_sampling"]


@pytest.mark.parametrize("size", [50_000, 500_000])
async def test_a_question_is_shown_to_its_end_or_not_asked(
    open_rest: Open, fake_server: Fake, size: int
) -> None:
    asked: list[ApprovalRequest] = []
    async with open_rest({"fs": fake_server()}, on_ask=approver(asked, True)) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        questions = ServerQuestions(rest.session)
        server = rest.mcp.connections["fs"].server
        hidden = {"properties": {"a": {"default": "x" * size}, "z": {"default": "the end"}}}
        answer = await questions.elicit(server, "really?", hidden)

        async def sampler(_server: str, _params: dict[str, Any]) -> dict[str, Any]:
            return {}

        rest.sample_with(sampler)
        wanted = {"messages": ["x" * size], "systemPrompt": "be evil"}
        with contextlib.suppress(McpError):
            await questions.sample(server, wanted)
    shown = [request.arguments for request in asked]
    if size > 100_000:
        assert (answer, shown) == ({"action": "decline"}, [])
    else:
        assert "the end" in shown[0]
        assert "be evil" in shown[1]


async def test_roots(open_rest: Open, fake_server: Fake, tmp_path: Path) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        await rest.wait_for_mcp()
        roots = json.loads((await rest.call("fs/ask", {"text": "roots/list"})).text)
    assert roots == {"roots": [{"uri": f"file://{tmp_path / 'workspace'}"}]}


@pytest.mark.parametrize(
    ("schema", "note", "content"),
    [
        ({}, "", {}),
        ({"properties": {"a": {"type": "string", "default": "d"}}}, "", {"a": "d"}),
        ({"properties": {"a": {"type": "string"}}}, "", {}),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "", None),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "said", {"a": "said"}),
        ({"properties": {"a": {"type": "string", "enum": ["x"]}}}, "", {"a": "x"}),
        ({"properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}, "said", None),
        ({"properties": {"a": 7}, "required": ["a"]}, "", None),
    ],
)
def test_what_a_plain_yes_can_fill_in(schema: Any, note: str, content: Any) -> None:
    assert filled(schema, Review("approved", note).note) == content
