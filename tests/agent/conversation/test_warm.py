"""What the first call needs is there before it comes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from toolrest import Toolrest
from toolrest.agent.conversation import preload as warm
from toolrest.agent.conversation.conversation import Conversation
from toolrest.events import WeakSandbox
from toolrest.gate.tool.tool import Tool
from toolrest.sandbox import confine
from toolrest.testing import Call, ScriptedModel

FIRST_CALL = """
import asyncio, sys
from toolrest import Toolrest
from toolrest.agent.conversation.preload import WarmUp

async def main(folder):
    async with Toolrest(folder, tools=["all"], model="gpt-5.5", sandbox_mode=sys.argv[2]) as rest:
        warm_up = WarmUp(rest.session.registry.listed())
        warm_up.load()
        before = set(sys.modules)
        output = await rest.call("exec_command", {"cmd": "echo hi"})
        assert "hi" in output.text, output.text
        late = sorted(name for name in set(sys.modules) - before if name.startswith("toolrest"))
        print(len(late), late)

asyncio.run(main(sys.argv[1]))
"""


OPENED = """
import sys
from toolrest.agent.open_session import open_session
from toolrest.config.loader import load

config = load(workspace=sys.argv[1], flags={"model": "gpt-5.5"})
session = open_session(config, env={"OPENAI_API_KEY": "sk-none-0123456789"}, ephemeral=True)
assert session.accounting.window
print([name for name in sys.modules if name in ("h11", "toolrest.tools.files.grep_files")])
session.rest.offered(session.model.wire)
assert "toolrest.tools.files.grep_files" in sys.modules
"""


def test_a_session_opens_without_what_only_its_first_request_takes(tmp_path: Path) -> None:
    """The person who waits for the chat does not wait for these."""
    argv = [sys.executable, "-c", OPENED, str(tmp_path)]
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.mark.slow
def test_the_first_command_finds_nearly_everything_loaded(tmp_path: Path) -> None:
    for mode in ("danger-full-access", "workspace-write"):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_CALL, str(tmp_path), mode], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[0]) <= 8, done.stdout


async def test_it_begins_after_the_request_and_ends_with_the_session(tmp_path: Path) -> None:
    loaded: list[str] = []

    class Noted(warm.WarmUp):
        def _begin(self) -> None:
            loaded.append("begun")

    warm_up = Noted([])
    warm_up.start()
    assert loaded == []
    warm_up.stop()
    model = ScriptedModel([[Call("update_plan", {"plan": []})], "done"])
    async with Conversation(Toolrest(tmp_path, tools=["plan"]), model) as session:
        end = await session.run("go")
    assert end.status == "completed"
    assert loaded == []


def test_what_cannot_be_loaded_is_left_to_the_first_call() -> None:
    class Broken(Tool):
        def warm(self) -> None:
            raise ImportError("no")

    seen: list[str] = []

    class Fine(Broken):
        def warm(self) -> None:
            seen.append("fine")

    warm.WarmUp([Broken(), Fine()]).load()
    assert seen == ["fine"]


@pytest.mark.needs("landlock")
async def test_the_request_does_not_wait_for_the_kind_of_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has answered before a sandbox has, and the person still reads of a weak one."""
    answered, said = threading.Event(), list[str]()
    is_weak = confine.SessionSandbox.is_weak

    def slow(self: confine.SessionSandbox) -> bool:
        assert answered.wait(60)
        return is_weak(self)

    monkeypatch.setattr(confine, "bwrap_programs", lambda roots: ())
    monkeypatch.setattr(confine.SessionSandbox, "is_weak", slow)
    rest = Toolrest(tmp_path, tools=["shell"], sandbox_mode="workspace-write")
    async with Conversation(rest, ScriptedModel(["done"])) as session:
        rest.subscribe(lambda e: said.append(e.message) if isinstance(e, WeakSandbox) else None)
        end = await session.run("go")
        answered.set()
        assert end.status == "completed"
        assert await session.warm_up().found_weak_sandbox()
    assert len(said) == 1
