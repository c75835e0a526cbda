"""Tokens of sub-agents count for the session that they work for, once, wherever it is looked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Agent
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.conversation.usage import Budget
from toolrest.agent.open_session import open_session
from toolrest.batch.tasks.journal import used_in
from toolrest.config.loader import default_config
from toolrest.testing import Call, ScriptedModel
from toolrest.wire.model import ModelRequest, Usage

Open = Callable[..., Conversation]
PRICES = {
    "model_prices.scripted.input": 1000.0,
    "model_prices.scripted.output": 1000.0,
    "model_prices.small.input": 100.0,
    "model_prices.small.output": 100.0,
    "agents.roles.small.model": "small",
}
REPLY = Usage(input=100, output=10, total=110)
SPAWN = Call("spawn_agent", {"message": "look", "agent_type": "small"})


@pytest.fixture
async def opened(workspace: Path, toolrest_home: Path) -> AsyncIterator[Open]:
    """Opens sessions whose model and sub-agents follow scripts."""
    made: list[Conversation] = []

    def make(script: Any, *children: Any, resume: str | None = None) -> Conversation:
        models = iter(children)
        session = open_session(
            default_config(PRICES, workspace=workspace),
            ScriptedModel(script, name="scripted"),
            make_model=lambda config: ScriptedModel(next(models), name=config.value.model or ""),
            resume=resume,
        )
        made.append(session)
        return session

    yield make
    for session in made:
        await session.aclose()


def wait(request: ModelRequest) -> Any:
    """A call that waits for the agent that was spawned."""
    output = next(i["output"] for i in request.items if i.get("type") == "function_call_output")
    return [Call("wait", {"ids": [json.loads(output)["agent_id"]]})]


async def test_they_are_in_usage_cost_and_journal(opened: Open) -> None:
    session = opened([[SPAWN], wait, "done"], [[Call("update_plan", {"plan": []})], "seen"])
    result = await session.run("go")
    assert result.text == "done"
    five = sum([REPLY] * 5, Usage())
    assert (result.usage, session.usage) == (five, five)
    cost = 3 * 0.11 + 2 * 0.011
    assert session.accounting.cost() == pytest.approx(cost)
    assert session.accounting.last == REPLY, "the context is the session's own"
    path = session.journal.path or ""
    await session.aclose()
    used = used_in(path)
    assert (used.usage, used.turns, used.tool_calls) == (five, 3, 2)
    assert used.spent["small"] == REPLY + REPLY
    again = opened(["more"], resume=path)
    assert again.usage == five
    assert again.accounting.cost() == pytest.approx(cost)
    result = await again.run("go on")
    assert (result.usage, again.usage) == (REPLY, five + REPLY)


async def test_max_tokens_ends_the_child_and_its_parent(opened: Open) -> None:
    """The child has no limit of its own, and would never end."""
    calls = [[Call("update_plan", {"plan": []})]] * 50
    session = opened([[SPAWN], wait, "done"], calls)
    result = await session.run("go", budget=Budget(max_tokens=800))
    assert (result.status, result.error) == (
        "budget", "880 tokens were used, and max_tokens is 800",
    )  # fmt: skip
    outputs = [item["output"] for item in session.history if "output" in item]
    (ended,) = json.loads(outputs[-1])["status"].values()
    assert ended == {"errored": "880 tokens were used, and max_tokens is 800"}


async def test_a_model_that_was_passed_serves_the_sub_agents_too(workspace: Path) -> None:
    def reply(request: ModelRequest) -> Any:
        outputs = [i for i in request.items if i.get("type") == "function_call_output"]
        if "look at it" in json.dumps(request.items[-1]):
            return "seen"
        if not outputs:
            return [Call("spawn_agent", {"message": "look at it"})]
        return wait(request) if len(outputs) == 1 else outputs[-1]["output"]

    model = ScriptedModel([reply] * 4)
    agent = Agent(model, tools=["agents"], workspace=workspace)
    result = await agent.run("go")
    assert "seen" in (result.text or "")
    assert not model.closed
    assert len(model.requests) == 4
