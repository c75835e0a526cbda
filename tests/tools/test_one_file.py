"""A new built-in tool is one file: the rest of the house learns of it from its class."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import Call, Say
from toolrest.testing.server import ScriptedServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NEW = '''"""`count_words`: how many words a text has."""

from __future__ import annotations

from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import Icon, Tool
from toolrest.items import Group
from toolrest.policy.effects import Effects


class CountWords(Tool):
    """Counts."""

    name = "count_words"
    description = "Count the words of a text."
    group: Group = "read"
    icon: Icon = "search"
    small_window = False
    typical = Effects.none()

    class Args(Parameters):
        """Parameters."""

        text: str = param(description="The text.")

    async def run(self, args: Args, ctx: Context) -> str:
        """The number."""
        return str(len(args.text.split()))
'''


class House:
    """A copy of the package with one more file, and commands that run from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work, self.home = folder / "work", folder / "home"
        for made in (self.work, self.home):
            made.mkdir()
        self.env = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(folder / "src"),
            "TOOLREST_HOME": str(self.home),
        }
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / "toolrest", folder / "src" / "toolrest", ignore=ignored)
        for kept in ("docs/tools.md", "tests/tools/test_prepared.py"):
            (folder / kept).parent.mkdir(parents=True)
            shutil.copy(ROOT / kept, folder / kept)
        (folder / "src" / "toolrest" / "tools" / "count_words.py").write_text(NEW)

    async def run(self, *arguments: str, **more: str) -> str:
        """What `python ARGUMENTS` prints."""
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, *arguments),
            cwd=self.work,
            env={**self.env, **more},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await running.communicate()
        assert running.returncode == 0, out.decode()
        return out.decode()

    async def toolrest(self, *arguments: str) -> str:
        return await self.run("-m", "toolrest", *arguments)

    def use(self, server: ScriptedServer) -> None:
        settings = server.settings()
        url = settings["model_providers"]["scripted"]["base_url"]
        (self.home / "config.toml").write_text(
            f'model = {json.dumps(settings["model"])}\nmodel_provider = "scripted"\n'
            f'[model_providers.scripted]\nbase_url = "{url}"\nwire_api = "responses"\n'
            f'[projects."{self.work}"]\ntrust_level = "trusted"\n'
        )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """With what CONTRIBUTING says to run after a change to a tool."""
    made = House(tmp_path_factory.mktemp("house"))
    test = str(made.folder / "tests" / "tools" / "test_prepared.py")
    command = ("-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", test)
    asyncio.run(made.run(*command, WRITE_SCHEMAS="1"))
    return made


async def test_the_rest_of_the_house_learns_of_a_new_tool(house: House) -> None:
    # The command and the page.
    listed = await house.toolrest("tools")
    (row,) = [line for line in listed.splitlines() if line.startswith("count_words ")]
    assert row.split()[1:4] == ["read", "no", "yes"]
    assert row.endswith("Count the words of a text.")
    page = (house.folder / "docs" / "tools.md").read_text()
    assert "| `count_words` | read | yes |  | no | search |" in page
    # Specs, with and without room for it.
    specs = await house.toolrest("tools", "--wire", "chat")
    assert '"name":"count_words"' in specs
    small = await house.toolrest("tools", "--wire", "chat", "-c", "tools.small_context=true")
    assert "read_file" in small
    assert "count_words" not in small


async def test_exec_shows_a_call(house: House) -> None:
    async with ScriptedServer([Call("count_words", {"text": "a b c"}), Say("three")]) as server:
        house.use(server)
        printed = await house.toolrest("exec", "--json", "count")
    items = [line["item"] for line in map(json.loads, printed.splitlines()) if "item" in line]
    begun, done = [item for item in items if item["type"] == "tool_call"]
    assert (begun["tool"], begun["arguments"]) == ("count_words", {"text": "a b c"})
    assert (begun["status"], "output" in begun) == ("in_progress", False)
    assert (done["status"], done["output"]) == ("completed", "3")


async def test_an_editor_is_shown_a_call(house: House) -> None:
    from acp import spawn_agent_process
    from acp.helpers import text_block

    class Editor:
        updates: list[Any] = []

        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
            self.updates.append(update)

        def on_connect(self, conn: Any) -> None:
            pass

    editor: Any = Editor()
    async with ScriptedServer([Call("count_words", {"text": "a b"}), Say("two")]) as server:
        house.use(server)
        command = (sys.executable, "-m", "toolrest", "acp")
        async with spawn_agent_process(editor, *command, env=house.env) as (agent, _):
            await agent.initialize(protocol_version=1)
            session = await agent.new_session(cwd=str(house.work), mcp_servers=[])
            await agent.prompt(session_id=session.session_id, prompt=[text_block("count")])
    (call,) = [update for update in editor.updates if update.session_update == "tool_call"]
    assert (call.title, call.kind) == ("count_words a b", "search")


async def test_an_mcp_client_can_call_it(house: House) -> None:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    arguments = ["-m", "toolrest", "mcp", "serve", "-C", str(house.work)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=house.env)
    async with Client(stdio_client(server)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("count_words", {"text": "a b c d"})
    hints = tools["count_words"].annotations
    assert hints is not None
    assert (hints.title, hints.read_only_hint) == ("count words", True)
    assert [getattr(part, "text", None) for part in answer.content] == ["4"]
