"""The fragments of pages, which await without a function around them, run as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from tests.docs.blocks import FRAGMENT, ROOT, blocks, fragment, run

from toolrest import Agent, Context, PendingApproval, Sandbox, Toolrest, tool
from toolrest.testing import Call, ScriptedModel, ScriptedServer

pytestmark = pytest.mark.long


@tool(mutating=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"{order} paid back"


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "rain"


@pytest.mark.needs("sandbox")
async def test_answering_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "Makefile").write_text("install:\n\t@echo installed\n")
    names = {"workspace": tmp_path / "work", "home": tmp_path / "home"}
    both = {"Toolrest": Toolrest, "PendingApproval": PendingApproval}
    after = await run(fragment("docs/answering.md", "make install"), names | both)
    assert "installed" in after["output"].text


class Names(dict[str, Any]):
    """Names of a fragment whose session's id comes from its first half."""

    def __missing__(self, name: str) -> Any:
        if name == "session_id":
            return self["result"].session_id
        raise KeyError(name)


async def test_approval_later(tmp_path: Path) -> None:
    model = ScriptedModel([Call("refund", {"order": "A7"}), "Done."])
    agent = Agent(model, tools=[refund], on_ask="defer", home=tmp_path)
    after = await run(fragment("docs/library.md", "Refund order"), Names(agent=agent))
    assert after["result"].text == "Done."


async def test_a_loop_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ScriptedServer([Call("weather", {"city": "Oslo"})]) as server:
        async with AsyncOpenAI(base_url=server.url, api_key="sk-none-0123456789") as client:
            messages = [{"role": "user", "content": "Do I need an umbrella?"}]
            names = {"Toolrest": Toolrest, "weather": weather}
            names |= {"client": client, "messages": messages}
            await run(fragment("docs/library.md", "client.chat"), names)
    assert messages[-1]["role"] == "tool"
    assert messages[-1]["content"] == "rain"


@pytest.mark.needs("namespaces")
async def test_commands_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "test_one.py").write_text("def test_one() -> None:\n    pass\n")
    await run(fragment("docs/library.md", "pypi.org"), {"Sandbox": Sandbox})
    assert capsys.readouterr().out.startswith("0 ")


@pytest.mark.needs("namespaces")
async def test_a_server_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    text = fragment("docs/mcp.md", "mcp-server-time")
    patience = 'settings = {\n    "mcp_servers.time.startup_timeout_sec": 60,'
    after = await run(text.replace("settings = {", patience), {"Toolrest": Toolrest})
    assert "UTC" in after["output"].text


@pytest.mark.needs("namespaces")
async def test_the_reference_s_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the integrations need other packages: tests/integrations/cases runs them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    page = "docs/reference/api.md"
    names: dict[str, Any] = {
        "Context": Context,
        "Path": Path,
        "Sandbox": Sandbox,
    }
    names |= {"Toolrest": Toolrest, "tool": tool, "messages": [], "model": ScriptedModel(["Done."])}
    after = await run(fragment(page, 'box.run(["pytest", "-q"])'), names)
    assert after["result"].exit_code is not None
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    after = await run(fragment(page, "async def count_lines"), names)
    counting = {"name": "count_lines", "arguments": '{"path": "lines.txt"}'}
    call = {"id": "c1", "type": "function", "function": counting}
    names["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    after = await run(fragment(page, "tools=[count_lines"), after)
    assert after["messages"][-1]["content"] == "2"
    assert "count_lines" in str(after["specs"])


def test_the_rules_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "page.rules").write_text(fragment("docs/approvals.md", "prefix_rule("))
    wanted = {"git push origin": "ask", "make deploy": "deny", "uv run pytest": "allow"}
    for command, answer in {**wanted, "gh pr list": "allow"}.items():
        done = subprocess.run(
            [Path(sys.executable).parent / "toolrest", "policy", "check", command],
            env={**os.environ, "TOOLREST_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.stdout.startswith(f"{answer} "), done.stdout + done.stderr
        assert ("outside the sandbox" in done.stdout) is command.startswith("gh")


def test_no_fragment_is_left_out() -> None:
    found = {
        page: sum(bool(FRAGMENT.search(block)) for block in blocks(page))
        for page in (str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
    }
    counts = {"docs/answering.md": 1, "docs/library.md": 3, "docs/mcp.md": 1}
    counts["docs/reference/api.md"] = 6
    assert {page: count for page, count in found.items() if count} == counts
