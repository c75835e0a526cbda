"""Hooks and pending approvals in the life of an agent's session."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Effects, tool
from toolrest.agent.conversation.conversation import Conversation
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.testing import Call, ScriptedModel

Make = Callable[..., Conversation]
Script = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """One row of settings for a hook in Python."""
    folder = tmp_path_factory.mktemp("hooks")

    def write(body: str) -> list[dict[str, Any]]:
        path = folder / f"hook{len(list(folder.iterdir()))}.py"
        path.write_text(f"import json, sys\ntold = json.load(sys.stdin)\n{body}\n")
        return [{"command": [sys.executable, "-I", "-S", str(path)]}]

    return write


def texts(items: Any) -> list[str]:
    return [part["text"] for item in items for part in item.get("content") or () if "text" in part]


async def test_a_session_starts_and_stops_with_its_hooks(agent: Make, script: Script) -> None:
    hold = (
        "if not told['stop_hook_active']:\n"
        "    print('test it: ' + told['last_assistant_message'], file=sys.stderr)\n"
        "    sys.exit(2)"
    )
    model = ScriptedModel(["done", "tested", "hello"])
    session = agent(
        model,
        hooks__SessionStart=script("print('the build is red, ' + told['source'])"),
        hooks__Stop=script(hold),
    )
    assert (await session.run("go")).text == "tested"
    assert "the build is red, startup" in texts(model.requests[0].items)
    assert texts(model.requests[1].items)[-1] == "test it: done"
    await session.run("again")
    started = [text for text in texts(model.requests[2].items) if "the build" in text]
    assert len(started) == 1, "a session starts once"


async def test_a_hook_may_refuse_the_start(agent: Make, script: Script) -> None:
    model = ScriptedModel(["never"])
    session = agent(model, hooks__SessionStart=script("sys.exit(2)"))
    result = await session.run("go")
    assert (result.status, result.reason) == ("failed", "denied")
    assert "SessionStart hook denied the session" in (result.error or "")
    assert model.requests == []


async def test_a_broken_stop_hook_keeps_nobody_going(agent: Make, script: Script) -> None:
    result = await agent(["done"], hooks__Stop=script("sys.exit(1)")).run("go")
    assert result.text == "done"


async def test_a_question_left_behind_is_answered_and_the_resumed_session_goes_on(
    agent: Make, toolrest_home: Path
) -> None:
    done: list[str] = []

    @tool(effects=Effects(calls=("elsewhere",)))
    async def act(text: str) -> str:
        """Act."""
        done.append(text)
        return "acted"

    call = Call("act", {"text": "x"})
    first = agent([[call], "I must wait"], tools=[act], on_ask="defer")
    result = await first.run("go")
    assert result.text == "I must wait"
    assert len(result.denials) == 1
    path = first.journal.path
    (pending,) = first.rest.pending
    await first.aclose()
    assert pending.id in json.dumps(first.history)
    store = PendingStore(str(toolrest_home))
    store.answer(store.get(pending.id), "approved")
    again = agent([[call], [call], "done"], tools=[act], on_ask="defer", resume=str(path))
    assert (await again.run("go on")).text == "done"
    outputs = [i["output"] for i in again.history if i["type"] == "function_call_output"]
    assert outputs[1] == "acted"
    assert "needs approval" in outputs[2]
    assert done == ["x"]
