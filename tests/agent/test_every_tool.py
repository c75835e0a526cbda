"""Every tool that models are offered, called by a scripted model on each of the three wires."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.opened import open_session
from toolrest.agent.session import AgentSession
from toolrest.config.loader import Config
from toolrest.testing import Call, Freeform, Say, ScriptedModel
from toolrest.testing.server import ScriptedServer

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

Open = Callable[..., AgentSession]


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
    def make(settings: dict[str, Any]) -> AgentSession:
        given = {
            "approval_policy": "never",
            "tool_security.audit_log_enabled": False,
            **settings,
        }
        return open_session(Config.default(given, workspace=project), ephemeral=True)

    return make


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", CALLS)
async def test_every_tool_on_every_wire(opened: Open, name: str, wire: Any) -> None:
    call, expected = CALLS[name]
    async with ScriptedServer([call, Say("end"), Say("end of a child")]) as server:
        async with opened(server.settings(wire)) as session:
            result = await session.run("go")
        assert (result.status, result.error) == ("completed", None)
        assert server.refused == []
        after = server.requests[1].body
        said = after.get("input") or after["messages"]
        begun = next(i for i, item in enumerate(said) if "call" in json.dumps(item))
        assert expected in json.dumps(said[begun + 1 :])


async def test_no_offered_tool_is_without_a_row(project: Path) -> None:
    offered = set()
    for model in (None, "claude-sonnet", "gpt-5", "gpt-5.1-codex", "gpt-oss-20b"):
        given = {"model": model} if model else {}
        config = Config.default(given, workspace=project)
        made = open_session(config, make_model=lambda _: ScriptedModel([]), ephemeral=True)
        async with made as session:
            offered |= {tool.name for tool in session.rest.tools}
    assert offered <= set(CALLS)
