"""Connections that the allow list refused are told to the command that tried them, and bounded."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.machine import solid_ground

from toolrest import Toolrest
from toolrest.events import ConnectionBlocked
from toolrest.running.refused import MOST, RefusedConnections

TRY = """
import socket, sys
for host in sys.argv[1:]:
    with socket.create_connection(("127.0.0.1", 3128)) as proxy:
        proxy.sendall(f"CONNECT {host} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
        proxy.recv(100)
"""
SETTINGS = {
    "approval_policy": "never",
    "tool_security.allowed_network_domains": ["example.org"],
}


def tries(*hosts: str) -> str:
    return shlex.join((sys.executable, "-I", "-c", TRY, *hosts))


@pytest.fixture
def workspace(tmp_path: Path) -> Any:
    with tempfile.TemporaryDirectory(dir=solid_ground()) as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.needs("namespaces")
async def test_a_later_command_is_not_told_what_an_earlier_one_tried(workspace: str) -> None:
    events: list[ConnectionBlocked] = []
    async with Toolrest(workspace, settings=SETTINGS) as rest:
        rest.subscribe(lambda e: events.append(e) if isinstance(e, ConnectionBlocked) else None)

        async def said(line: str) -> str:
            return (await rest.call("shell", {"command": ["/bin/sh", "-c", line]})).text

        assert "evil.test" not in await said(tries("evil.test:443"))
        assert "evil.test" not in await said("exit 3")
        assert "a connection to evil.test:443" in await said(f"{tries('evil.test:443')}; exit 3")
        assert [event.host for event in events] == ["evil.test", "evil.test"]
        events.clear()
        await said(tries(*(f"{number % 50}.test:443" for number in range(200))))
        assert [event.host for event in events] == [f"{number}.test" for number in range(MOST)]


def test_of_several_commands_one_is_told_what_its_output_names() -> None:
    connections = RefusedConnections()
    server, build = connections.begin(), connections.begin()
    assert connections.note("telemetry.test:443")
    assert not connections.note("telemetry.test:443")
    assert build.by_this_command("make: *** [all] Error 1") == []
    assert build.by_this_command("cannot reach telemetry.test") == ["telemetry.test:443"]
    connections.end(build)
    connections.end(build)
    assert not connections.note("telemetry.test:443")
    assert connections.note("other.test:80")
    assert server.by_this_command("") == ["telemetry.test:443", "other.test:80"]
    assert build.by_this_command("") == []


def test_what_comes_while_no_command_runs_is_bounded() -> None:
    connections = RefusedConnections()
    told = [connections.note(f"{number}.test:443") for number in range(100)]
    assert sum(told) == MOST
    assert connections.begin().by_this_command("1.test") == []
