"""The user's program that hears of each turn's end, and what is told of thoughts."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest.agent.conversation.conversation import Conversation
from toolrest.errors import ConfigError
from toolrest.events import Event, Warning  # noqa: A004 - the event
from toolrest.gate.hooks.notify import MOST_RUNNING, as_argument
from toolrest.testing import Call, ScriptedModel
from toolrest.wire.model import ItemDone, ReasoningDelta

Make = Callable[..., Conversation]
SECRET = "sk-verysecret-1234567890"
WRITES = """\
import json, os, sys
said = {"argv": sys.argv[1:], "cwd": os.getcwd(), "sid": os.getsid(0), "env": dict(os.environ)}
path = os.path.join(os.path.dirname(__file__), f"told-{os.getpid()}")
with open(path + ".new", "w") as file:
    json.dump(said | {"pid": os.getpid()}, file)
os.rename(path + ".new", path + ".json")
print("noise")
"""

WAITS = """\
import time
end = time.monotonic() + 120
while time.monotonic() < end and not os.path.exists(os.path.join(os.path.dirname(path), "go")):
    time.sleep(0.05)
"""


class Listener:
    """A program that writes down what it is told."""

    def __init__(self, folder: Path, body: str = WRITES) -> None:
        self.folder = folder
        path = folder / "notify.py"
        path.write_text(body)
        self.argv = [sys.executable, "-I", "-S", str(path), "extra"]

    def told(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("told-*.json"), key=os.path.getmtime)
        return [json.loads(file.read_text()) for file in files]

    async def heard(self, count: int) -> list[dict[str, Any]]:
        """What was told, once there is so much of it."""
        deadline = time.monotonic() + 60
        while len(self.told()) < count:
            assert time.monotonic() < deadline, "the program was not told"
            await asyncio.sleep(0.02)
        return self.told()


@pytest.fixture
def listener(tmp_path_factory: pytest.TempPathFactory) -> Listener:
    return Listener(tmp_path_factory.mktemp("notify"))


def warnings_of(session: Conversation) -> list[str]:
    seen: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Warning):
            seen.append(event.message)

    session.rest.subscribe(listen)
    return seen


async def test_each_turn_is_told_once(
    agent: Make, listener: Listener, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    session = agent([f"it is {SECRET}", "two"], notify=listener.argv)
    turns: list[str] = []
    session.rest.subscribe(lambda e: turns.append(e.turn_id) if e.type == "turn_started" else None)
    await session.run(f"mine is {SECRET}")
    (told,) = await listener.heard(1)
    assert told["argv"][0] == "extra"
    assert json.loads(told["argv"][1]) == {
        "type": "agent-turn-complete",
        "thread-id": session.id,
        "turn-id": turns[0],
        "cwd": str(workspace),
        "input-messages": ["mine is [redacted:SOME_API_KEY]"],
        "last-assistant-message": "it is [redacted:SOME_API_KEY]",
    }
    assert told["cwd"] == str(workspace)
    assert told["sid"] == told["pid"], "it has a session of its own"
    assert SECRET not in json.dumps(told)
    assert "SOME_API_KEY" not in told["env"]
    await session.run("again")
    second = json.loads((await listener.heard(2))[1]["argv"][1])
    assert second["input-messages"] == ["again"]
    assert (second["last-assistant-message"], second["turn-id"]) == ("two", turns[1])


@pytest.mark.usefixtures("any_sandbox")
async def test_a_failed_turn_is_told_and_a_stopped_one_is_not(
    agent: Make, listener: Listener
) -> None:
    failed = await agent([], notify=listener.argv).run("go")
    assert failed.status == "failed"
    (told,) = await listener.heard(1)
    assert json.loads(told["argv"][1])["last-assistant-message"] is None

    session = agent([Call("exec_command", {"cmd": "sleep 900"})], notify=listener.argv)
    begun = asyncio.Event()
    session.rest.subscribe(lambda e: begun.set() if e.type == "exec_command_begin" else None)
    turn = asyncio.ensure_future(session.run("wait"))
    await asyncio.wait_for(begun.wait(), 60)
    await session.interrupt()
    assert (await turn).status == "interrupted"
    assert len(listener.told()) == 1


async def test_nobody_waits_for_it(agent: Make, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("slow")
    slow = Listener(folder, WRITES + WAITS)
    session = agent(["done"] * (MOST_RUNNING + 2), notify=slow.argv)
    seen = warnings_of(session)
    for _ in range(MOST_RUNNING + 2):
        assert (await session.run("go")).text == "done"
    await session.aclose()  # and still none of them has ended
    (warned,) = seen
    assert f"{MOST_RUNNING} of it are still running" in warned
    assert len(await slow.heard(MOST_RUNNING)) == MOST_RUNNING
    (folder / "go").touch()


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/no/such/program"])
async def test_a_missing_program_is_one_warning(agent: Make, program: str) -> None:
    session = agent(["one", "two"], notify=[program])
    seen = warnings_of(session)
    assert (await session.run("go")).text == "one"
    assert (await session.run("go")).text == "two"
    (warned,) = seen
    assert program in warned
    assert warned.startswith("notify: ")


async def test_a_program_that_cannot_be_run_is_one_warning(agent: Make, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF no")
    broken.chmod(0o755)
    session = agent(["one", "two"], notify=[str(broken)], sandbox_mode="read-only")
    order: list[str] = []
    session.rest.subscribe(lambda event: order.append(event.type))
    assert (await session.run("go")).text == "one"
    assert (await session.run("go")).text == "two"
    assert order.count("warning") == 1
    assert order.index("warning") < order.index("task_complete"), "nothing comes after the end"


def test_a_program_that_tools_could_rewrite_is_refused(agent: Make, workspace: Path) -> None:
    (workspace / "tell.sh").write_text("#!/bin/sh\n")
    (workspace / "tell.sh").chmod(0o755)
    with pytest.raises(ConfigError, match=r"notify: .*tell.sh: tools may write there"):
        agent(["x"], notify=[str(workspace / "tell.sh")])
    with pytest.raises(ConfigError, match=r"notify: ./tell.sh: a project could bring its own"):
        agent(["x"], notify=["./tell.sh"])


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.text() | st.text().map(lambda t: t * 4000), max_size=4),
    st.none() | st.text() | st.sampled_from(["\x00" * 90_000, "😀" * 90_000, "\ud800" * 90_000]),
)
def test_any_texts_fit_into_one_argument(said: list[str], answer: str | None) -> None:
    told = {"type": "t", "input-messages": said, "last-assistant-message": answer}
    text = as_argument(told)
    assert len(text) < 100_000
    assert text.isascii()
    assert "\x00" not in text
    again = json.loads(text)
    if sum(map(len, said)) < 1000:
        assert again["input-messages"] == said
    assert (again["last-assistant-message"] is None) == (answer is None)


class Thinks(ScriptedModel):
    """Thinks in words of its own and sends a summary too."""

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """The thought, then the script."""
        yield ReasoningDelta("short")
        yield ReasoningDelta("at length", summary=False)
        yield ItemDone(
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "short"}],
                "content": [{"type": "reasoning_text", "text": "at length"}],
            }
        )
        async for event in super().stream(request):
            yield event


@pytest.mark.parametrize(
    ("given", "summary", "raw"),
    [
        ({}, True, False),
        ({"show_raw_agent_reasoning": True}, True, True),
        ({"hide_agent_reasoning": True}, False, False),
        ({"hide_agent_reasoning": True, "show_raw_agent_reasoning": True}, False, False),
    ],
)
async def test_what_is_told_of_thoughts(
    agent: Make, given: dict[str, bool], summary: bool, raw: bool
) -> None:
    model = Thinks(["one", "two"])
    session = agent(model, **given)
    seen = [event async for event in session.stream("go")]
    texts = {
        (told["type"], told.get("raw"), told.get("delta") or told["text"])
        for told in (event.to_json() for event in seen)
        if "reasoning" in told["type"]
    }
    expected = set()
    if summary:
        expected |= {
            ("agent_reasoning", None, "short"),
            ("reasoning_content_delta", False, "short"),
        }
    if raw:
        expected |= {
            ("agent_reasoning_raw_content", None, "at length"),
            ("reasoning_content_delta", True, "at length"),
        }
    assert texts == expected
    await session.run("more")
    thought = [item for item in model.requests[1].items if item.get("type") == "reasoning"]
    assert {item["content"][0]["text"] for item in thought} == {"at length"}, "history has it all"
