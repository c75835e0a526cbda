"""llama.cpp's real server with a tiny model, and sessions that talk to it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.real.tiny_model import write_model

from toolrest.agent.conversation.session import AgentSession
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.config.schema.families import ModelWire

SERVER = Path(__file__).with_name("llama_server.py")


class Llama:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self._process = process
        self.address = address

    def kill(self) -> None:
        self._process.kill()

    def settings(self, wire: ModelWire, **row: Any) -> dict[str, Any]:
        given = {"base_url": f"{self.address}/v1", "wire_api": wire, **row}
        # llama.cpp knows no developer, and this template takes one system message.
        given.setdefault("capabilities", {"developer_role": False})
        given["request"] = {"context_window": "auto", **given.get("request", {})}
        given.setdefault("stream_max_retries", 0)
        given.setdefault("request_max_retries", 0)
        return {"model": "tiny", "model_provider": "llama", "model_providers": {"llama": given}}


Serve = Callable[..., AbstractAsyncContextManager[Llama]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Starts a server; `calls` is how often its model calls a tool."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("llama.cpp is not here: pip install xllamacpp (x86-64 Linux)")

    @asynccontextmanager
    async def running(*, calls: float = 0.55, **options: Any) -> AsyncIterator[Llama]:
        file = tmp_path / "tiny.gguf"
        write_model(file, window=options.get("window", 32768), calls=calls)
        argv = (sys.executable, "-P", str(SERVER), str(file), json.dumps(options))
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        try:
            assert process.stdout is not None
            line = b""
            while not line.startswith(b"http"):
                line = await asyncio.wait_for(process.stdout.readline(), 60)
                assert line, "llama.cpp's server did not start"
            yield Llama(process, line.decode().strip())
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    return running


@pytest.fixture
async def talk(tmp_path: Path, toolrest_home: Path) -> AsyncIterator[Callable[..., AgentSession]]:
    """Makes sessions with settings and tools of one's own; each is closed after the test."""
    made: list[AgentSession] = []
    workspace = tmp_path / "project"
    workspace.mkdir()

    def make(settings: dict[str, Any], *tools: Any, **more: Any) -> AgentSession:
        quiet = {"tool_security.audit_log_enabled": False, "tools.small_context": True}
        config = default_config({**quiet, **settings, **more}, workspace=workspace)
        session = open_session(config, on_ask=lambda _: True)
        for tool in tools:
            session.rest.add_tool(tool)
        made.append(session)
        return session

    yield make
    for session in made:
        await session.aclose()
