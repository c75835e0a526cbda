"""Another agent with our tools: the real `codex exec`, our server in its settings."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolrest.testing import Raw, Say
from toolrest.testing.server import ScriptedServer

CODEX = "@openai/codex"


async def test_codex_calls_a_tool_of_ours(
    npm: Callable[..., Path], node: str, full: bool, workspace: Path, tmp_path: Path
) -> None:
    if not full:
        pytest.skip("npm install @openai/codex is 400 MB: only in make test-full")
    codex = npm(CODEX) / "node_modules" / ".bin" / "codex"
    call = {
        "type": "function_call",
        "call_id": "call-1",
        "namespace": "mcp__toolrest",
        "name": "read_file",
        "arguments": json.dumps({"file_path": str(workspace / "hello.txt")}),
    }
    home = tmp_path / "codex"
    (home / "tmp").mkdir(parents=True)
    async with ScriptedServer([Raw(call), Say("done")], check=False) as server:
        ours = ["-m", "toolrest", "mcp", "serve", "-C", str(workspace)]
        (home / "config.toml").write_text(
            f"""
model = "gpt-5.5"
model_provider = "mock"
approval_policy = "never"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "{server.url}"
env_key = "MOCK_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
[feedback]
enabled = false
[mcp_servers.toolrest]
command = {json.dumps(sys.executable)}
args = {json.dumps(ours)}
startup_timeout_sec = 60
required = true
env = {{ TOOLREST_HOME = {json.dumps(str(tmp_path / "home"))} }}
"""
        )
        process = await asyncio.create_subprocess_exec(
            str(codex),
            *("exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access"),
            *("-C", str(workspace), "go"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                "PATH": f"{Path(node).parent}:/usr/bin:/bin",
                "HOME": str(home),
                "CODEX_HOME": str(home),
                "TMPDIR": str(home / "tmp"),
                "MOCK_API_KEY": "dummy",
            },
        )
        out, _ = await process.communicate()
    events = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
    called = [
        event["item"]
        for event in events
        if event["type"] == "item.completed" and event["item"]["type"] == "mcp_tool_call"
    ]
    assert [(item["server"], item["tool"]) for item in called] == [("toolrest", "read_file")], out
    assert "hello" in json.dumps(called[0])
    sent_back = json.dumps(server.requests[-1].body["input"])
    assert "hello" in sent_back
