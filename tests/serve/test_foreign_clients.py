"""Clients that others wrote: the inspector, and the conformance suite of the protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.real.conformance import CONFORMANCE, SERVER, VERSIONS

from toolrest import tool
from toolrest.gate.context import Context
from toolrest.items import Image, Text, ToolOutput
from toolrest.policy.effects import Effects

Serving = Callable[..., AbstractAsyncContextManager[str]]
Npm = Callable[..., Path]
TOKEN = "0123456789abcdef0123"
INSPECTOR = "@modelcontextprotocol/inspector"


async def run(*argv: str, cwd: Path | None = None, **env: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd or "/"), **env},
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@pytest.mark.long
async def test_inspector_over_standard_input(
    npm: Npm, node: str, workspace: Path, tmp_path: Path
) -> None:
    cli = npm(INSPECTOR) / "node_modules" / ".bin" / "mcp-inspector"
    config = tmp_path / "servers.json"
    server = {
        "command": sys.executable,
        "args": ["-m", "toolrest", "mcp", "serve", "-C", str(workspace), "-a", "never"],
        "env": {"TOOLREST_HOME": str(tmp_path / "home")},
    }
    config.write_text(json.dumps({"mcpServers": {"toolrest": server}}))
    start = (node, str(cli), "--cli", "--config", str(config), "--server", "toolrest")
    path = {"PATH": f"{Path(node).parent}:/usr/bin:/bin"}
    code, out = await run(*start, "--method", "tools/list", cwd=tmp_path, **path)
    assert code == 0, out
    assert '"exec_command"' in out
    read = ("--tool-name", "read_file", "--tool-arg", "file_path=hello.txt")
    code, out = await run(*start, "--method", "tools/call", *read, cwd=tmp_path, **path)
    assert code == 0, out
    assert "hello" in out


@tool(name="test_simple_text", effects=Effects.none())
async def simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool(name="test_image_content", effects=Effects.none())
async def image_content() -> ToolOutput:
    """Return an image."""
    pixel = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJ"
        "RU5ErkJggg=="
    )
    return ToolOutput([Image(f"data:image/png;base64,{pixel}")])


@tool(name="test_error_handling", effects=Effects.none())
async def error_handling() -> ToolOutput:
    """Fail."""
    return ToolOutput.error("This tool intentionally returns an error for testing")


@tool(name="test_tool_with_progress", effects=Effects.none())
async def tool_with_progress(ctx: Context) -> list[Text]:
    """Report progress three times."""
    for number in (0, 50, 100):
        ctx.progress(f"{number} %", number / 100)
        await asyncio.sleep(0.05)
    return [Text("done")]


@pytest.mark.long
@pytest.mark.parametrize(("version", "suite"), SERVER)
async def test_conformance(
    npm: Npm, node: str, serving: Serving, tmp_path: Path, version: str, suite: str
) -> None:
    program = npm(VERSIONS[version]) / "node_modules" / CONFORMANCE / "dist" / "index.js"
    tools: list[Any] = [simple_text, image_content, error_handling, tool_with_progress]
    known = tmp_path / "expected.yml"
    left_out = SERVER[version, suite]
    known.write_text("server:\n" + "".join(f"  - {name}\n" for name in left_out))
    command = (node, str(program), "server", "--suite", suite, "--expected-failures", str(known))
    async with serving(TOKEN, let_in=True, tools=tools) as url:
        code, out = await run(*command, "--url", url, cwd=tmp_path)
    assert code == 0, out[-3000:]


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_the_specs_hold_for_every_mode(serving: Serving, mode: str) -> None:
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        serving(TOKEN, sandbox_mode=mode) as url,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as web,
        Client(streamable_http_client(url, http_client=web)) as client,
    ):
        tools = (await client.list_tools()).tools
        assert all(found.input_schema["type"] == "object" for found in tools)
        assert all(found.description for found in tools)
