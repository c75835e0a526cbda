"""acpx, a headless client of the Agent Client Protocol from npm, against `toolrest acp`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.serve.editor import write_settings

from toolrest.testing import Call, Say
from toolrest.testing.server import ScriptedServer

PATCH = "*** Begin Patch\n*** Update File: hello.txt\n@@\n-hello\n+hello world\n*** End Patch"


@pytest.mark.long
async def test_acpx(
    npm: Callable[..., Path], node: str, workspace: Path, toolrest_home: Path, tmp_path: Path
) -> None:
    client = npm("acpx") / "node_modules" / ".bin" / "acpx"
    env = {
        "PATH": f"{Path(node).parent}:/usr/bin:/bin",
        "TOOLREST_HOME": str(toolrest_home),
        "HOME": str(tmp_path),
    }

    async def acpx(*arguments: str) -> str:
        running = await asyncio.create_subprocess_exec(
            *(node, str(client), "--agent", f"{sys.executable} -m toolrest acp"),
            *("--cwd", str(workspace), "--ttl", "60", *arguments),
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(running.communicate(), 120)
        assert running.returncode == 0, out.decode()
        return out.decode()

    script: list[Any] = [Call("apply_patch", {"input": PATCH}), Say("could not")]
    script += [Call("apply_patch", {"input": PATCH}), Say("all done")]
    async with ScriptedServer(script) as server:
        write_settings(server, toolrest_home, workspace, 'approval_policy = "untrusted"')
        await acpx("sessions", "new")
        # acpx starts us anew for each of these: the mode has to last.
        assert "mode set: read-only" in await acpx("set-mode", "read-only")
        out = await acpx("--approve-all", "prompt", "go")
        assert "[tool] Edit hello.txt (failed)" in out
        assert (workspace / "hello.txt").read_text() == "hello\n"
        await acpx("set-mode", "ask")
        out = await acpx("--approve-all", "prompt", "go")
        assert "session/request_permission" in out
        assert "[tool] Edit hello.txt (completed)" in out
        assert "all done" in out
        assert "approvals  untrusted" in await acpx("prompt", "/status")
        await acpx("sessions", "close")
    assert (workspace / "hello.txt").read_text() == "hello world\n"
