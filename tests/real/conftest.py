"""llama.cpp's real server with a tiny model, and sessions that talk to it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.real.compatibility import Results
from tests.real.tiny_model import write_model

from toolrest import tool
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.config.schema.families import ModelWire
from toolrest.wire.items.pairing import call_id_of, is_call, is_output

WIRES: tuple[ModelWire, ...] = get_args(ModelWire)
SERVER = Path(__file__).with_name("llama_server.py")


WRITE_DOCS = os.environ.get("TOOLREST_WRITE_DOCS") == "1"
_RESULTS = Results()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what a test found, for docs/compatibility.md."""
    if WRITE_DOCS:
        _RESULTS.note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write docs/compatibility.md, if that was asked for."""
    if WRITE_DOCS and not hasattr(session.config, "workerinput"):
        _RESULTS.write()


@tool(mutating=False)
def note(text: str) -> str:
    """Write a note."""
    return f"noted: {text}"


def assert_valid(session: Conversation) -> int:
    """Each call has one output, right after the model's items; returns how many there are."""
    items = session.history
    called = Counter(call_id_of(item) for item in items if is_call(item))
    answered = Counter(item["call_id"] for item in items if is_output(item))
    assert called == answered
    assert set(called.values()) <= {1}
    return len(called)


class Llama:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process | None, address: str) -> None:
        self._process = process
        self.address = address

    def kill(self) -> None:
        if self._process is not None:
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
async def talk(tmp_path: Path, toolrest_home: Path) -> AsyncIterator[Callable[..., Conversation]]:
    """Makes sessions with settings and tools of one's own; each is closed after the test."""
    made: list[Conversation] = []
    workspace = tmp_path / "project"
    workspace.mkdir()
    instructions = tmp_path / "instructions.md"
    instructions.write_text("Use the tools.")

    def make(
        settings: dict[str, Any], *tools: Any, resume: str | None = None, **more: Any
    ) -> Conversation:
        # llama.cpp reads every byte of a prompt as a token here: instructions and tools are few.
        quiet: dict[str, Any] = {
            "tool_security.audit_log_enabled": False,
            "tools.enabled": ["user"] if tools else ["list_dir"],
        }
        quiet["model_instructions_file"] = str(instructions)
        config = default_config({**quiet, **settings, **more}, workspace=workspace)
        session = open_session(config, on_ask=lambda _: True, resume=resume)
        for each in tools:
            session.rest.add_tool(each)
        if resume is not None:
            made.clear()  # the test closed the one before, which need not stay in memory
        made.append(session)
        return session

    yield make
    for session in made:
        await session.aclose()
