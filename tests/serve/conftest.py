from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.rest import Toolrest
from toolrest.config.resolved import Config
from toolrest.gate.approval import OnAsk
from toolrest.serve.server import ToolServer


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "inner").mkdir(parents=True)
    (folder / "hello.txt").write_text("hello\n")
    return folder


@pytest.fixture
def make_server(workspace: Path, tmp_path: Path) -> Callable[..., ToolServer]:
    def make(tools: Any = (), **settings: Any) -> ToolServer:
        config = Config.default(
            {"tool_security.audit_log_enabled": True, **settings},
            workspace=workspace,
            home=tmp_path / "home",
        )

        def open_session(folder: str, chosen: Config, on_ask: OnAsk) -> Toolrest:
            return Toolrest(folder, config=chosen, on_ask=on_ask, tools=tools)

        return ToolServer(config, str(workspace), open_session)

    return make


@pytest.fixture
def stdio(workspace: Path, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """The real command, started by the official client."""

    def connect(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> Any:
        from mcp.client.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client

        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "toolrest", "mcp", "serve", "-C", str(workspace), *arguments],
            env={"TOOLREST_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", **(env or {})},
        )
        return Client(stdio_client(server), **options)

    return connect
