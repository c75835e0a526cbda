"""Public servers as people use them: list, call, resources, errors, images, progress, cancel."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.items import Image

pytestmark = pytest.mark.slow

Open = Callable[..., Toolrest]
BIN = Path(sysconfig.get_path("scripts"))


def script(name: str, *args: str, **row: Any) -> dict[str, Any]:
    path = BIN / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: pip install --group dev")
    return {"command": str(path), "args": list(args), "startup_timeout_sec": 100.0, **row}


def node_server(node: str, folder: Path, *args: str) -> dict[str, Any]:
    main = folder / "dist" / "index.js"
    return {"command": node, "args": [str(main), *args], "startup_timeout_sec": 100.0}


async def test_time(open_rest: Open) -> None:
    async with open_rest({"time": script("mcp-server-time", "--local-timezone=UTC")}) as rest:
        await rest.wait_for_mcp()
        answer = await rest.call("time/get_current_time", {"timezone": "Europe/Berlin"})
        assert "Europe/Berlin" in answer.text
        wrong = await rest.call("time/get_current_time", {"timezone": "Nowhere/Land"})
        assert wrong.failed
        missing = await rest.call("time/convert_time", {"time": "12:00"})
        assert missing.failure is not None
        assert missing.failure.kind == "input_invalid"


@pytest.mark.long
async def test_git(open_rest: Open, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    subprocess.run(["git", "init", "-q", "-b", "main", str(workspace)], check=True)
    (workspace / "new.txt").write_text("hello\n")
    async with open_rest({"git": script("mcp-server-git")}) as rest:
        await rest.wait_for_mcp()
        status = await rest.call("git/git_status", {"repo_path": str(workspace)})
        assert "new.txt" in status.text
        outside = await rest.call("git/git_status", {"repo_path": "/nonesuch"})
        assert outside.failed


@pytest.mark.long
async def test_fetch(open_rest: Open) -> None:
    async with open_rest({"fetch": script("mcp-server-fetch")}) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert rest.mcp.status()[0].tools == ("fetch",)
        # No network is needed to be refused, and the refusal is an answer.
        answer = await rest.call("fetch/fetch", {"url": "http://127.0.0.1:9/"})
        assert answer.failed
        prompt = await rest.mcp.get_prompt("fetch", "fetch", {"url": "http://127.0.0.1:9/"})
        assert prompt["messages"]


async def test_filesystem(open_rest: Open, node: str, npm_servers: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "a.txt").write_text("the content")
    row = node_server(node, npm_servers / "server-filesystem", str(workspace))
    async with open_rest({"fs": row}) as rest:
        await rest.wait_for_mcp()
        read = await rest.call("fs/read_text_file", {"path": str(workspace / "a.txt")})
        assert read.text == "the content"
        hidden = await rest.call("fs/read_text_file", {"path": "/etc/passwd"})
        assert hidden.failed
        made = {"path": str(workspace / "b.txt"), "content": "made"}
        assert not (await rest.call("fs/write_file", made)).failed
        assert (workspace / "b.txt").read_text() == "made"


async def test_everything(open_rest: Open, node: str, npm_servers: Path) -> None:
    row = node_server(node, npm_servers / "server-everything")
    async with open_rest({"all": row}) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        tools = set(rest.mcp.status()[0].tools)
        assert "hi there" in (await rest.call("all/echo", {"message": "hi there"})).text
        image = await rest.call("all/get-tiny-image")
        assert isinstance(image.content, list)
        assert any(isinstance(part, Image) for part in image.content)
        listed = json.loads((await rest.call("list_mcp_resources", {"server": "all"})).text)
        first = listed["resources"][0]["uri"]
        read = await rest.call("read_mcp_resource", {"server": "all", "uri": first})
        assert json.loads(read.text)["contents"][0]["uri"] == first
        templates = await rest.call("list_mcp_resource_templates", {"server": "all"})
        assert json.loads(templates.text)["resourceTemplates"]
        assert "trigger-long-running-operation" in tools


async def test_progress_and_cancel(open_rest: Open, node: str, npm_servers: Path) -> None:
    row = node_server(node, npm_servers / "server-everything")
    async with open_rest({"all": row}) as rest:
        await rest.wait_for_mcp()
        said: list[float | None] = []

        def listen(event: Any) -> None:
            if event.type == "tool_call_progress":
                said.append(event.fraction)

        rest.subscribe(listen)
        name = "all/trigger-long-running-operation"
        done = await rest.call(name, {"duration": 1, "steps": 4})
        assert not done.failed
        assert said[-1] == 1.0
        seen = len(said)
        call = asyncio.ensure_future(
            rest.call(name, {"duration": 60, "steps": 600}, call_id="long")
        )
        while len(said) == seen:  # it runs: its first step has come
            await asyncio.sleep(0.01)
        assert "aborted" in (await rest.cancel("long")).text
        await call
        assert "still" in (await rest.call("all/echo", {"message": "still"})).text
