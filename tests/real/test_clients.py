"""Clients that others wrote, with `toolrest mcp serve` as their server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import Raw, ScriptedServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
PROGRAMS = Path(__file__).with_name("clients")
PYTHON = {
    "fastmcp": ("fastmcp_client.py", "fastmcp"),
    "langchain-mcp-adapters": ("langchain_client.py", "langchain-mcp-adapters"),
    "openai-agents": ("openai_agents_client.py", "openai-agents"),
    "pydantic-ai": ("pydantic_ai_client.py", "pydantic-ai-slim[mcp]"),
}
INSPECTOR = "@modelcontextprotocol/inspector"
CODEX = "@openai/codex"
CLIENTS = (*PYTHON, INSPECTOR, CODEX)
_TOOL_FAILED = 5  # the inspector's exit code for an error of a tool
Npm = Callable[..., Path]
Apart = Callable[..., str]


async def run(*argv: str, cwd: Path, code: int = 0, **env: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), **env},
    )
    out, err = await process.communicate()
    assert process.returncode == code, (out + err).decode()[-3000:]
    return out.decode()


class Desk:
    """A workspace, the command that serves it, and the programs of clients."""

    def __init__(self, folder: Path, npm: Npm, node: str, apart: Apart) -> None:
        self.folder, self.npm, self.node, self.apart = folder, npm, node, apart
        self.workspace = folder / "project"
        self.workspace.mkdir()
        (self.workspace / "hello.txt").write_text("hello from the file\n")
        (self.workspace / ".env").write_text("KEY=very-secret\n")
        serve = ("-m", "toolrest", "mcp", "serve", "-C", str(self.workspace), "-a", "never")
        home = f"TOOLREST_HOME={folder / 'home'}"
        # Some clients pass no variables on.
        self.command = ("/usr/bin/env", home, sys.executable, *serve)

    def node_program(self, package: str, path: str) -> tuple[tuple[str, str], str]:
        """A program of an npm package, and the package's version."""
        modules = self.npm(package) / "node_modules"
        about = json.loads((modules / package / "package.json").read_text())
        return (self.node, str(modules / package / path)), about["version"]


async def python_client(desk: Desk, name: str) -> dict[str, Any]:
    program, package = PYTHON[name]
    python = desk.apart(package)
    out = await run(python, str(PROGRAMS / program), *desk.command, cwd=desk.folder)
    found: dict[str, Any] = json.loads(out)
    return found


async def inspector(desk: Desk, name: str) -> dict[str, Any]:
    program, version = desk.node_program(name, "clients/launcher/build/index.js")
    config = desk.folder / "servers.json"
    row = {"command": desk.command[0], "args": desk.command[1:]}
    config.write_text(json.dumps({"mcpServers": {"toolrest": row}}))
    chosen = ("--cli", "--config", str(config), "--server", "toolrest")
    start = (*program, *chosen, "--connect-timeout", "300000", "--method")
    path = f"{Path(desk.node).parent}:/usr/bin:/bin"
    listed = json.loads(await run(*start, "tools/list", cwd=desk.folder, PATH=path))
    results = []
    for file, code in {"hello.txt": 0, ".env": _TOOL_FAILED}.items():
        call = ("tools/call", "--tool-name", "read_file", "--tool-arg", f"file_path={file}")
        out = await run(*start, *call, cwd=desk.folder, code=code, PATH=path)
        results.append(json.loads(out))
    return {
        "version": version,
        "tools": [tool["name"] for tool in listed["tools"]],
        "texts": [result["content"][0]["text"] for result in results],
        "failed": [bool(result.get("isError")) for result in results],
    }


async def codex(desk: Desk, name: str) -> dict[str, Any]:
    """Codex itself, with a scripted model that calls our tools."""
    program, version = desk.node_program(name, "bin/codex.js")
    script = [[Raw(_call(file))] for file in ("hello.txt", ".env")]
    with ScriptedServer([*script, "done"]) as server:
        provider = f'{{name="s", base_url="{server.url}", wire_api="responses"}}'
        settings = {
            "model_provider": '"s"',
            "model_providers.s": provider,
            "model": '"scripted"',
            "mcp_servers.toolrest.command": json.dumps(desk.command[0]),
            "mcp_servers.toolrest.args": json.dumps(desk.command[1:]),
            "mcp_servers.toolrest.startup_timeout_sec": "300",
            "mcp_servers.toolrest.required": "true",
            "mcp_servers.toolrest.default_tools_approval_mode": '"approve"',
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        await run(*program, "exec", "--skip-git-repo-check", *options, "read both", cwd=desk.folder)
        bodies = [request.body for request in server.requests if request.wire is not None]
    (ours,) = [tool for tool in bodies[0]["tools"] if tool.get("name") == "mcp__toolrest"]
    outputs = [item for item in bodies[-1]["input"] if item["type"] == "function_call_output"]
    return {
        "version": version,
        "tools": [tool["name"] for tool in ours["tools"]],
        "texts": [json.dumps(item["output"]) for item in outputs],
    }


def _call(file: str) -> dict[str, str]:
    """A call as Codex's models make it: in the namespace of the server."""
    call = {"type": "function_call", "namespace": "mcp__toolrest", "name": "read_file"}
    return {**call, "arguments": json.dumps({"file_path": file}), "call_id": f"call-{file}"}


SPECIAL: dict[str, Callable[[Desk, str], Awaitable[dict[str, Any]]]] = {
    INSPECTOR: inspector,
    CODEX: codex,
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client(
    name: str,
    tmp_path: Path,
    npm: Npm,
    node: str,
    apart: Apart,
    record_property: Callable[[str, object], None],
) -> None:
    """It lists the tools, reads a file, and is told why it may not read another."""
    desk = Desk(tmp_path, npm, node, apart)
    found = await SPECIAL.get(name, python_client)(desk, name)
    assert {"read_file", "exec_command"} <= set(found["tools"])
    read, denied = found["texts"]
    assert "hello from the file" in read
    assert "hidden" in denied
    assert "very-secret" not in denied
    # Some hand only the texts on.
    assert found.get("failed", [False, True]) == [False, True]
    record_property("version", found["version"])
    record_property("what", f"{len(found['tools'])}: all listed, a file read, a denial passed on")
