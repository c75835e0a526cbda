"""Prompts of MCP servers as slash commands of the chat."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.chat.test_chat import ENTER, says

from toolrest.chat.commands.mcp_prompts import McpPrompts, PromptError, _arguments
from toolrest.gate.decision.taint import Taint

SERVER = Path(__file__).parents[1] / "mcp" / "data" / "fake_server.py"
ROW = {
    "name": "review",
    "arguments": [{"name": "file", "required": True}, {"name": "why"}],
}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("a.py", {"file": "a.py"}),
        ("a.py it is slow", {"file": "a.py", "why": "it is slow"}),
        ("'a b.py' slow", {"file": "a b.py", "why": "slow"}),
        ("why=slow a.py", {"file": "a.py", "why": "slow"}),
        ("a.py it's slow", {"file": "a.py", "why": "it's slow"}),
    ],
)
def test_words_are_arguments(words: str, found: dict[str, str]) -> None:
    assert _arguments("fs:review", ROW, words) == found


@pytest.mark.parametrize(
    ("row", "words", "problem"),
    [
        (ROW, "", "it wants file; write: /fs:review file=… why=…"),
        (ROW, "why=x", "it wants file"),
        ({"name": "review"}, "more", "it takes no more arguments"),
    ],
)
def test_what_does_not_fit_is_named(row: Any, words: str, problem: str) -> None:
    with pytest.raises(PromptError, match=problem):
        _arguments("fs:review", row, words)


async def test_the_name_of_a_prompt_does_nothing_to_the_terminal() -> None:
    class Pool:
        connections: ClassVar = {"fs": None}

        async def prompts(self) -> Any:
            return {"fs": [{"name": "a\x1b]0;title\x07"}]}, {}

    class Rest:
        has_servers = True
        mcp = Pool()

        async def wait_for_mcp(self, *names: str) -> None: ...

    prompts = McpPrompts(Rest())  # type: ignore[arg-type]
    with pytest.raises(PromptError) as error:
        await prompts.text("fs:other", "")
    assert all(text.isprintable() for text in [str(error.value), *prompts.known()])


async def test_a_server_that_was_starting_is_asked_again() -> None:
    class Pool:
        connections: ClassVar = {"fs": None}
        answers: ClassVar[list[Any]] = [({}, {"fs": "it is still starting"})]

        async def prompts(self) -> Any:
            return self.answers.pop(0) if self.answers else ({"fs": [{"name": "review"}]}, {})

        async def get_prompt(self, server: str, name: str, arguments: Any) -> Any:
            return {"messages": [{"role": "user", "content": {"type": "text", "text": name}}]}

    class Rest:
        has_servers = True
        mcp = Pool()
        session = SimpleNamespace(taint=Taint(enabled=False))

        async def wait_for_mcp(self, *names: str) -> None:
            assert names == ("fs",)

    prompts = McpPrompts(Rest())  # type: ignore[arg-type]
    assert await prompts.text("fs:review", "") == "review"
    with pytest.raises(PromptError, match=r"the servers have: /fs:review$"):
        await prompts.text("fs:other", "")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_prompt_of_a_server_is_a_command(chat: Any, desk: Any) -> None:
    shutil.copy(SERVER, desk.workspace)
    args = json.dumps(["-S", "-E", "fake_server.py", "plain"])
    row = f'[mcp_servers.fs]\ncommand = "{sys.executable}"\nargs = {args}\n'
    screen = chat(["done as the prompt says"], settings=row + "startup_timeout_sec = 60\n")
    says(screen, "/fs:nope")
    screen.sees("there is no prompt /fs:nope; the servers have: /fs:review")
    screen.types("/fs:r")
    screen.shows("/fs:review  a prompt of that server")
    screen.types("eview what=it" + ENTER)
    screen.sees("> do it", "done as the prompt says")
