"""A list of hosts that is set is a ceiling, whatever else opens the network (D-83)."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import toolrest.running.runner
from toolrest import Toolrest, tool
from toolrest.cli.setup.sandbox_checks import session_lines
from toolrest.config.loader import default_config
from toolrest.items import ToolOutput
from toolrest.running.confinement import EnforcementNotes
from toolrest.sandbox import confine

LISTED = "tool_security.allowed_network_domains"
OPEN = "sandbox_workspace_write.network_access"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server of this machine that says hello."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def reach(port: int) -> dict[str, Any]:
    code = (
        "import socket; there = socket.create_connection(('127.0.0.1', %d)); "
        "there.send(b'G'); print(there.recv(9999).decode())"
    )
    return {"cmd": shlex.join(("python3", "-c", code % port)), "login": False}


async def run(work: Path, call: dict[str, Any], **settings: Any) -> ToolOutput:
    given = {key.replace("__", "."): value for key, value in settings.items()}
    async with Toolrest(work, settings={"approval_policy": "never", **given}) as rest:
        return await rest.call("exec_command", call)


@pytest.mark.slow
@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("listed", [["example.com"], []])
async def test_a_list_binds_commands_where_the_network_is_on(
    tmp_path: Path, port: int, listed: list[str]
) -> None:
    assert "hello" in (await run(tmp_path, reach(port), **{OPEN: True})).text
    output = await run(tmp_path, reach(port), **{OPEN: True, LISTED: listed})
    assert "hello" not in output.text
    assert output.failed


@pytest.fixture
def only_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "bwrap_programs", lambda roots: [])
    monkeypatch.setattr(toolrest.running.runner, "EnforcementNotes", EnforcementNotes)


@pytest.mark.slow
@pytest.mark.needs("landlock")
@pytest.mark.usefixtures("only_landlock")
@pytest.mark.parametrize("opened", [False, True])
async def test_a_box_that_holds_no_list_runs_commands_without_network(
    tmp_path: Path, port: int, opened: bool
) -> None:
    settings = {OPEN: opened, LISTED: ["127.0.0.1"], "approval_policy": "never"}
    async with Toolrest(tmp_path, settings=settings) as rest:
        output = await rest.call("exec_command", {"cmd": "echo ran", "login": False})
        assert "ran" in output.text
        said = "the landlock sandbox: commands have no network, as a list of hosts needs bubblewrap"
        assert sum(said in line for line in output.text.splitlines()) == 1
        output = await rest.call("exec_command", reach(port))
        assert "hello" not in output.text
        assert output.failed
        assert said not in output.text


async def test_a_list_binds_tools_that_name_their_host(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(connects="url")
    def ping(url: str) -> str:
        """Reach a host."""
        ran.append(url)
        return "reached"

    def never(request: Any) -> bool:
        raise AssertionError("asked")

    settings = {OPEN: True, LISTED: ["*.example.com:8443"]}
    async with Toolrest(tmp_path, settings=settings, tools=[ping], on_ask=never) as rest:
        output = await rest.call("ping", {"url": "https://evil.test/"})
    assert "evil.test is not in tool_security.allowed_network_domains" in output.text
    assert output.failure is not None
    assert output.failure.kind == "policy_denied"
    settings = {OPEN: True, LISTED: ["*.example.com:8443"]}
    async with Toolrest(tmp_path, settings=settings, tools=[ping], on_ask="allow") as rest:
        assert (await rest.call("ping", {"url": "https://a.example.com:8443/"})).text == "reached"
    assert ran == ["https://a.example.com:8443/"]


async def test_an_empty_list_refuses_every_page(tmp_path: Path) -> None:
    settings = {OPEN: True, LISTED: []}
    async with Toolrest(tmp_path, settings=settings, tools=["all"], on_ask="allow") as rest:
        output = await rest.call("webfetch", {"url": "https://example.com/"})
    assert "example.com is not in tool_security.allowed_network_domains" in output.text


def test_doctor_says_that_the_list_binds(tmp_path: Path) -> None:
    for listed, words in (
        (None, "commands reach everything"),
        ([], "commands reach nothing ("),
        (["a.example"], "commands reach only a.example (tool_security."),
    ):
        config = default_config(
            {OPEN: True} if listed is None else {OPEN: True, LISTED: listed}, workspace=tmp_path
        )
        assert any(line.startswith(words) for line in session_lines(config))
