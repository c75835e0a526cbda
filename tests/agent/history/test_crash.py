"""kill -9 at any moment: the session goes on with a whole history, and nothing is done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.history.rollout import lines_of
from toolrest.agent.history.stored_sessions import stored_sessions
from toolrest.config.loader import default_config
from toolrest.process.helper.tree import alive
from toolrest.testing import ScriptedModel
from toolrest.testing.server import ScriptedServer
from toolrest.wire.items.pairing import OUTPUT_OF, call_id_of, is_call
from toolrest.wire.providers import model_for

Make = Callable[..., Conversation]
WIRES = ("responses", "chat", "anthropic")
CHILD = Path(__file__).parent / "inside" / "crash.py"


class Crashes:
    """Starts sessions in forks of one prepared process, and kills them."""

    def __init__(self, home: Path, workspace: Path, log: Path) -> None:
        self.home, self.workspace, self.log = home, workspace, log
        self.child = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def crash(self, resume: str | None, effects: int, delay: float) -> None:
        """One session, ended by SIGKILL that many seconds after so many effects of its turn."""
        enough = len(self.done()) + effects
        job = {"home": str(self.home), "workspace": str(self.workspace), "log": str(self.log)}
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(job | {"resume": resume}) + "\n")
        self.child.stdin.flush()
        pid = int(self._line())
        if (said := self._line()) == "running":
            until = time.monotonic() + 60
            while len(self.done()) < enough and alive(pid):
                assert time.monotonic() < until, "the session does nothing"
                time.sleep(0.001)
            time.sleep(delay)
            with suppress(ProcessLookupError):  # it was faster
                os.kill(pid, signal.SIGKILL)
            said = self._line()
        assert said == "ended"

    def done(self) -> list[str]:
        """The calls that had an effect."""
        return self.log.read_text().split() if self.log.exists() else []

    def _line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def close(self) -> None:
        self.child.communicate()


@pytest.fixture
def crashes(toolrest_home: Path, workspace: Path, tmp_path: Path) -> Iterator[Crashes]:
    made = Crashes(toolrest_home, workspace, tmp_path / "effects.log")
    yield made
    made.close()


def check_whole(items: list[dict[str, Any]]) -> None:
    """Every call has exactly one output, and it comes after the call."""
    calls = Counter(call_id_of(item) for item in items if item["type"] in OUTPUT_OF)
    outputs = Counter(item["call_id"] for item in items if item["type"].endswith("_output"))
    assert calls == outputs
    assert set(calls.values()) <= {1}
    seen: set[str] = set()
    for item in items:
        if item["type"] in OUTPUT_OF:
            seen.add(call_id_of(item))
        elif item["type"].endswith("_output"):
            assert item["call_id"] in seen


async def check_goes_on(agent: Make, path: str, wire: Any) -> None:
    """The next request is one that the real APIs take: the server refuses any other."""
    async with ScriptedServer(["understood"]) as server:
        model = model_for(default_config(server.settings(wire)), {})
        session = agent(model, resume=path)
        result = await session.run("what happened?")
        assert (result.text, server.refused) == ("understood", []), result.error
        check_whole(session.history)
        await session.aclose()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_killed_at_any_moment_it_goes_on(
    crashes: Crashes, agent: Make, toolrest_home: Path, full: bool
) -> None:
    chance = random.Random(6)
    resume: str | None = None
    expected = 0
    for number in range(200 if full else 20):
        effects = chance.randrange(6)
        expected += effects
        crashes.crash(resume, effects, chance.uniform(0, 0.02))
        (stored,) = stored_sessions(str(toolrest_home))
        resume = stored.path
        if number % 5 == 4:
            await check_goes_on(agent, resume, WIRES[number // 5 % 3])
    done = crashes.done()
    assert len(done) >= expected > 20
    assert max(Counter(done).values()) == 1
    assert resume is not None
    # All lines of the file: the conversation itself was summarised on the way.
    lines = [line for line in lines_of(resume) if line is not None]
    recorded = [
        call_id_of(item) for kind, item in lines if kind == "response_item" and is_call(item)
    ]
    assert set(done) <= set(recorded), "something was done that had not been written down"
    assert max(Counter(recorded).values()) == 1


async def test_a_call_that_was_running_is_answered_and_not_repeated(agent: Make) -> None:
    from toolrest import tool

    ran: list[int] = []

    @tool
    def effect() -> str:
        """Count."""
        ran.append(1)
        return "ok"

    first = agent(["hello"], tools=[effect])
    await first.run("go")
    first.record({"type": "function_call", "name": "effect", "arguments": "{}", "call_id": "c1"})
    path = first.journal.path
    await first.aclose()
    model = ScriptedModel(["I see"])
    second = agent(model, resume=path, tools=[effect])
    await second.run("and?")
    sent = list(model.requests[0].items)
    check_whole(sent)
    assert not ran
    (output,) = [item for item in sent if item["type"] == "function_call_output"]
    assert output["output"].startswith("interrupted: Toolrest stopped while this call was running")
