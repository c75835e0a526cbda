"""Every tool that models are offered, called by a scripted model on each of the three wires."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.testing import Call, Freeform, Say, ScriptedModel
from toolrest.testing.server import ScriptedServer
from toolrest.wire.providers import model_for

WIRES = ["responses", "chat", "anthropic"]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
)
PATCH = "*** Begin Patch\n*** Add File: made\n+hello\n*** End Patch\n"
EDIT = {"path": "notes.txt", "edits": [{"oldText": "needle", "newText": "pin"}]}
NOBODY = "00000000-0000-0000-0000-000000000007"

# The tool, its call, what the model reads. A call may be a function of the replies so far.
CALLS: dict[str, tuple[Any, str]] = {
    "exec_command": (Call("exec_command", {"cmd": "echo from the shell"}), "from the shell"),
    "write_stdin": (Call("write_stdin", {"session_id": 7, "chars": ""}), "7"),
    "shell": (Call("shell", {"command": ["echo", "from the shell"]}), "from the shell"),
    "shell_command": (Call("shell_command", {"command": "echo from it"}), "from it"),
    "container.exec": (Call("container.exec", {"command": ["echo", "old name"]}), "old name"),
    "local_shell": (Call("local_shell", {"command": ["echo", "older name"]}), "older name"),
    "update_plan": (
        Call("update_plan", {"plan": [{"step": "one", "status": "pending"}]}),
        "Plan updated",
    ),
    "apply_patch": (Freeform("apply_patch", PATCH), "A made"),
    "edit_file": (Call("edit_file", EDIT), "notes.txt"),
    "write_file": (Call("write_file", {"path": "made", "content": "x"}), "made"),
    "glob_files": (Call("glob_files", {"pattern": "*.txt"}), "notes.txt"),
    "grep_files": (Call("grep_files", {"pattern": "needle"}), "notes.txt"),
    "list_dir": (Call("list_dir", {"dir_path": "."}), "notes.txt"),
    "read_file": (Call("read_file", {"file_path": "notes.txt"}), "needle"),
    "webfetch": (Call("webfetch", {"url": "http://127.0.0.1:9/"}), "private or reserved"),
    "view_image": (Call("view_image", {"path": "dot.png"}), "base64"),
    "get_memory": (Call("get_memory", {}), "memories"),
    "save_memory": (Call("save_memory", {"text": "a note"}), "Saved to the project memory"),
    "read_skill": (Call("read_skill", {"name": "deploy"}), "Run make deploy"),
    "list_mcp_resources": (Call("list_mcp_resources", {}), "resources"),
    "list_mcp_resource_templates": (Call("list_mcp_resource_templates", {}), "resourceTemplates"),
    "read_mcp_resource": (
        Call("read_mcp_resource", {"server": "nobody", "uri": "a://b"}),
        "nobody",
    ),
    "spawn_agent": (Call("spawn_agent", {"message": "go"}), "agent_id"),
    "send_input": (Call("send_input", {"id": NOBODY, "message": "x"}), "not found"),
    "wait": (Call("wait", {"ids": [NOBODY]}), "not_found"),
    "close_agent": (Call("close_agent", {"id": NOBODY}), "not found"),
    "resume_agent": (Call("resume_agent", {"id": NOBODY}), "not found"),
}

COLOURS = [{"label": "red", "description": "warm"}, {"label": "green", "description": "calm"}]
QUESTION = {"id": "colour", "header": "Colour", "question": "Which one?", "options": COLOURS}
SERVER = Path(__file__).parents[1] / "mcp" / "data" / "fake_server.py"


def server(mode: str) -> dict[str, Any]:
    arguments = ["-S", "-E", "fake_server.py", mode]
    return {"mcp_servers.fake.command": sys.executable, "mcp_servers.fake.args": arguments}


# The same for tools that are there only with more settings.
MORE: dict[str, tuple[dict[str, Any], Any, str]] = {
    "request_user_input": (
        {"user_input.answers": {"colour": "blue"}},
        Call("request_user_input", {"questions": [QUESTION]}),
        "blue",
    ),
    "web_search": (
        {"web_search": "live", "sandbox_workspace_write.network_access": True},
        Call("web_search", {"query": "needles"}),
        "found needles",
    ),
    "mcp__fake__echo": (server("plain"), Call("mcp__fake__echo", {"text": "hi"}), "hi"),
    "fake/echo": (server("plain"), Call("fake/echo", {"text": "hello"}), "hello"),
    "tool_search": (
        {**server("many"), "model_context_window": 100_000},
        Call("tool_search", {"query": "tool 042"}),
        "mcp__fake__tool_042",
    ),
}

Open = Callable[..., Conversation]


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "notes.txt").write_text("a needle\n")
    (workspace / "dot.png").write_bytes(PIXEL)
    skill = workspace / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: deploy\ndescription: How to.\n---\nRun make deploy\n"
    )
    return workspace


@pytest.fixture
def opened(project: Path, toolrest_home: Path) -> Open:
    def make(settings: dict[str, Any]) -> Conversation:
        given = {
            "approval_policy": "never",
            "tool_security.audit_log_enabled": False,
            **settings,
        }
        return open_session(default_config(given, workspace=project), ephemeral=True)

    return make


@pytest.mark.usefixtures("any_sandbox")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", CALLS)
async def test_every_tool_on_every_wire(opened: Open, name: str, wire: Any) -> None:
    call, expected = CALLS[name]
    async with ScriptedServer([call, Say("end"), Say("end of a child")]) as server:
        async with opened(server.settings(wire)) as session:
            result = await session.run("go")
        assert (result.status, result.error) == ("completed", None)
        assert server.refused == []
        assert expected in answered(server)


def answered(server: ScriptedServer) -> str:
    """What the second request tells the model, from the answer to its call on."""
    after = server.requests[1].body
    said = after.get("input") or after["messages"]
    made = ("function_call", "tool_calls", "tool_use", "custom_tool_call")
    begun = next(
        i for i, item in enumerate(said) if any(f'"{m}"' in json.dumps(item) for m in made)
    )
    return json.dumps(said[begun + 1 :])


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", MORE)
async def test_tools_that_need_settings_on_every_wire(
    opened: Open, project: Path, name: str, wire: Any
) -> None:
    settings, call, expected = MORE[name]
    shutil.copy(SERVER, project)
    async with ScriptedServer([call, Say("end")]) as server:
        async with opened({**server.settings(wire), **settings}) as session:
            session.rest.use_search(
                lambda query, limit: [{"title": f"found {query}", "url": "https://a.example/"}]
            )
            await session.rest.wait_for_mcp()
            result = await session.run("go")
        assert (result.status, result.error, server.refused) == ("completed", None, [])
        assert expected in answered(server)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_clients_own_tool_on_every_wire(
    project: Path, toolrest_home: Path, wire: Any
) -> None:
    spec = {"name": "lookup", "description": "Look it up.", "inputSchema": {"type": "object"}}
    async with ScriptedServer([Call("lookup", {"key": "a"}), Say("end")]) as server:
        config = default_config(server.settings(wire), workspace=project)
        rest = Toolrest(
            project,
            config=config,
            dynamic_tools=[spec],
            on_dynamic_call=lambda call: f"the client has {call.arguments}",
        )
        async with Conversation(rest, model_for(config, {})) as session:
            result = await session.run("go")
        assert (result.status, result.error, server.refused) == ("completed", None, [])
        assert "the client has" in answered(server)


async def test_no_offered_tool_is_without_a_row(project: Path) -> None:
    offered = set()
    for model in (None, "claude-sonnet", "gpt-5", "gpt-5.1-codex", "gpt-oss-20b"):
        given = {"model": model} if model else {}
        config = default_config(given, workspace=project)
        made = open_session(config, make_model=lambda _: ScriptedModel([]), ephemeral=True)
        async with made as session:
            offered |= {tool.name for tool in session.rest.tools}
    assert offered <= set(CALLS)
