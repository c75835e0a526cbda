"""A session with servers of one's choice."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.clock import Clock

from toolrest import Toolrest
from toolrest.items import ToolOutput

NPM_SERVERS = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")
FAKE = Path(__file__).parent / "data" / "fake_server.py"
Open: TypeAlias = Callable[..., Toolrest]


def fake(mode: str = "plain", *more: str, **settings: Any) -> dict[str, Any]:
    """The settings of a server that behaves as told."""
    # -S -E: a test server needs no packages, and starts in a third of the time.
    args = ["-S", "-E", "fake_server.py", mode, *more]
    # A machine may take its time to start one; tests of the limit say what it is.
    return {"command": sys.executable, "args": args, "startup_timeout_sec": 60.0, **settings}


async def call_too_slow(rest: Toolrest, clock: Clock) -> ToolOutput:
    """The output of a call that takes longer than its limit of about a minute."""
    began = asyncio.Event()
    rest.subscribe(lambda e: began.set() if e.type == "mcp_tool_call_begin" else None)
    call = asyncio.ensure_future(rest.call("fs/sleep"))
    await began.wait()
    await asyncio.sleep(0)  # the request itself is written in the next step
    clock.skip(61)
    late = await call
    assert late.failure is not None
    assert late.failure.kind == "timed_out"
    return late


@pytest.fixture(autouse=True)
def anywhere(any_sandbox: None) -> None:
    """These servers do no harm; the tests that try what confines them say what they need."""


@pytest.fixture
def fake_server() -> Callable[..., dict[str, Any]]:
    """Makes a server's settings."""
    return fake


@pytest.fixture
def open_rest(tmp_path: Path) -> Open:
    """Opens a session with these servers, in a folder of its own."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    # The session's own /tmp is private, so the script has to be where servers can see it.
    shutil.copy(FAKE, workspace)

    def opened(servers: dict[str, dict[str, Any]], **options: Any) -> Toolrest:
        settings = {
            f"mcp_servers.{name}.{key}": value
            for name, row in servers.items()
            for key, value in row.items()
        }
        settings |= options.pop("settings", {})
        options.setdefault("on_ask", "allow")
        options.setdefault("tools", ["all"])
        options.setdefault("home", os.environ["TOOLREST_HOME"])
        return Toolrest(workspace, settings=settings, **options)

    return opened


@pytest.fixture(scope="session")
def npm_servers(npm: Callable[..., Path]) -> Path:
    """A folder with the reference servers that are written for Node."""
    return npm(*NPM_SERVERS) / "node_modules" / "@modelcontextprotocol"
