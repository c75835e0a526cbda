from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.rest import Toolrest
from toolrest.config.config import Config
from toolrest.config.loader import default_config
from toolrest.gate.approval.approvals import OnAsk
from toolrest.serve import http, listening
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
        config = default_config(
            {"tool_security.audit_log_enabled": True, **settings},
            workspace=workspace,
            home=tmp_path / "home",
        )

        def open_session(folder: str, chosen: Config, on_ask: OnAsk) -> Toolrest:
            return Toolrest(folder, config=chosen, on_ask=on_ask, tools=["all", *tools])

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


@pytest.fixture
def serving(make_server: Callable[..., ToolServer]) -> Callable[..., Any]:
    """The HTTP application on a free port of loopback."""

    @asynccontextmanager
    async def serve(
        token: str,
        *,
        let_in: bool = False,
        tools: Any = (),
        host: str = "127.0.0.1",
        allowed: Sequence[str] = (),
        **settings: Any,
    ) -> AsyncIterator[str]:
        import uvicorn

        server = make_server(tools, **settings)
        sock = listening.listen("127.0.0.1", 0)  # whatever `host` the application is told
        port = sock.getsockname()[1]
        app: Any = http.application(server, host, port, token, allowed)
        if let_in:
            app = _with_token(app, token)
        web = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        web.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        running = asyncio.ensure_future(web.serve(sockets=[sock]))
        try:
            yield f"http://127.0.0.1:{port}{http.PATH}"
        finally:
            web.should_exit = True
            await running
            sock.close()
            await server.aclose()

    return serve


def _with_token(app: Any, token: str) -> Any:
    """For clients that cannot send a token: what they ask arrives with it."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]
            scope = {**scope, "headers": headers}
        await app(scope, receive, send)

    return wrapped
