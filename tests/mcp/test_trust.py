"""Pins: a server that is started differently, or describes a tool differently, is asked about."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.config import load, trust
from toolrest.config.model import McpServer
from toolrest.gate.review import ApprovalRequest
from toolrest.mcp.pins import Pins, launch_record
from toolrest.mcp.servers import resolve

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]


class Asked(list[ApprovalRequest]):
    """An approver that remembers what it was asked."""

    def __init__(self, answer: bool) -> None:
        super().__init__()
        self.answer = answer

    def __call__(self, request: ApprovalRequest) -> bool:
        self.append(request)
        return self.answer


async def listed(rest: Toolrest) -> set[str]:
    async with rest:
        await rest.wait_for_mcp()
        return {tool.name.removeprefix("mcp__fs__") for tool in rest.tools if tool.mcp}


async def test_the_users_own_server_is_pinned_at_first_use(
    open_rest: Open, fake_server: Fake, toolrest_home: Path
) -> None:
    assert "echo" in await listed(open_rest({"fs": fake_server()}, on_ask="deny"))
    pins = toolrest_home / "mcp" / "pins.json"
    assert stat.S_IMODE(pins.stat().st_mode) == 0o600
    pinned = json.loads(pins.read_text())["servers"]["fs"]
    assert pinned["launch"]["program"].startswith("/")
    assert "echo" in pinned["tools"]


async def test_a_changed_command_is_asked_about_with_a_diff(
    open_rest: Open, fake_server: Fake
) -> None:
    await listed(open_rest({"fs": fake_server()}, on_ask="deny"))
    changed = {"fs": fake_server("plain", "more")}
    rest = open_rest(changed, on_ask="deny")
    assert await listed(rest) == set()
    assert rest.mcp is not None
    (status,) = rest.mcp.status()
    assert status.state == "failed"
    assert "changed since it was approved" in status.reason
    assert "toolrest mcp approve fs" in status.reason
    asked = Asked(True)
    assert "echo" in await listed(open_rest(changed, on_ask=asked))
    assert [request.tool for request in asked] == ["mcp_server_start"]
    assert '+  "more"' in asked[0].diff
    # And from now on that is what is pinned.
    assert "echo" in await listed(open_rest(changed, on_ask="deny"))


async def test_never_does_not_ask(open_rest: Open, fake_server: Fake) -> None:
    await listed(open_rest({"fs": fake_server()}))
    asked = Asked(True)
    rest = open_rest({"fs": fake_server("noisy")}, on_ask=asked, approval_policy="never")
    assert await listed(rest) == set()
    assert not asked


@pytest.mark.parametrize(
    "change",
    [
        {"command": "/bin/other"},
        {"args": ("a", "c")},
        {"env": {"MODE": "y"}},
        {"env": {"MODE": "x", "MORE": "1"}},
        {"env_vars": ("HOME", "SHELL")},
        {"cwd": "elsewhere"},
        {"network": False},
        {"writable_roots": ("/data",)},
    ],
)
def test_any_change_of_the_launch_changes_its_record(change: dict[str, Any]) -> None:
    row: dict[str, Any] = {"command": "/bin/one", "args": ("a", "b"), "env": {"MODE": "x"}}
    row |= {"env_vars": ("HOME",), "cwd": "here"}

    def record(row: dict[str, Any]) -> Any:
        server = resolve("s", McpServer.model_validate(row), "user", "/f", {})
        return launch_record(server, server.argv[0])

    assert record(row) == record(dict(row))
    assert record(row) != record(row | change)


def test_the_record_of_an_address_and_no_secret_in_it() -> None:
    row = {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer very-secret"}}
    server = resolve("s", McpServer.model_validate(row), "user", "/f", {})
    other = resolve("s", McpServer(url="https://a.example/mcq"), "user", "/f", {})
    assert "very-secret" not in json.dumps(launch_record(server, None))
    assert launch_record(server, None) != launch_record(other, None)
    keyed = McpServer(command="x", env={"API_KEY": "very-secret"})
    assert "very-secret" not in json.dumps(
        launch_record(resolve("s", keyed, "user", "/f", {}), "x")
    )


@pytest.mark.parametrize(
    "change",
    [
        {"description": "The echo tool!"},
        {"inputSchema": {"type": "object", "properties": {"text": {"type": "number"}}}},
        {"annotations": {"readOnlyHint": True}},
        {"title": "Echo"},
    ],
)
async def test_a_changed_tool_is_set_aside_until_somebody_has_seen_the_change(
    open_rest: Open, fake_server: Fake, tmp_path: Path, change: dict[str, Any]
) -> None:
    state = tmp_path / "workspace" / "state"
    state.write_text("{}")
    servers = {"fs": fake_server("described", "state")}
    assert "echo" in await listed(open_rest(servers, on_ask="deny"))
    state.write_text(json.dumps(change))
    rest = open_rest(servers, on_ask="deny")
    names = await listed(rest)
    assert "echo" not in names
    assert "fail" in names
    assert "changed since the server was approved" in rest.quarantined["mcp__fs__echo"]
    asked = Asked(True)
    assert "echo" in await listed(open_rest(servers, on_ask=asked))
    (request,) = asked
    assert request.tool == "mcp_tools_changed"
    assert any(line.startswith("+") for line in request.diff.splitlines())
    assert "echo" in await listed(open_rest(servers, on_ask="deny"))


async def test_a_folders_servers_are_asked_about_and_only_when_it_is_trusted(
    open_rest: Open, fake_server: Fake, tmp_path: Path, toolrest_home: Path
) -> None:
    workspace = tmp_path / "workspace"
    row = {**fake_server(), "default_tools_approval_mode": "approve", "network": True}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"fs": row}}))

    def opened(on_ask: Any) -> Toolrest:
        return Toolrest(workspace, config=load(workspace=workspace), on_ask=on_ask)

    rest = opened("deny")
    assert await listed(rest) == set()
    trust.trust(workspace)
    rest = opened("deny")
    assert await listed(rest) == set()
    assert rest.mcp is not None
    assert "toolrest mcp approve fs" in rest.mcp.status()[0].reason
    asked = Asked(True)
    rest = opened(asked)
    assert "echo" in await listed(rest)
    assert str(workspace / ".mcp.json") in asked[0].reason
    # What a folder says about approval does not count.
    assert rest.mcp is not None
    assert rest.mcp.server("fs").row.default_tools_approval_mode == "auto"


def test_a_damaged_file_approves_nothing(tmp_path: Path) -> None:
    server = resolve("s", McpServer(command="x"), "user", "/f", {})
    path = str(tmp_path / "mcp" / "pins.json")
    Pins(path).put_launch(server, {"command": "x"})
    assert Pins(path).get(server) is not None
    for damage in ("", "[]", "{", '{"version": 1, "servers": {"s": 7}}', '{"version": 9}'):
        Path(path).write_text(damage)
        assert Pins(path).get(server) is None
    os.unlink(path)
    assert Pins(path).get(server) is None


async def test_the_next_session_offers_what_was_listed_before_it_starts_anything(
    open_rest: Open, fake_server: Fake, toolrest_home: Path
) -> None:
    servers = {"fs": fake_server()}
    await listed(open_rest(servers))
    assert stat.S_IMODE((toolrest_home / "mcp" / "tools.json").stat().st_mode) == 0o600
    async with open_rest(servers) as rest:
        assert rest.mcp is not None
        assert "mcp__fs__echo" in {tool.name for tool in rest.tools}
        assert rest.mcp.status()[0].state == "configured"
        assert (await rest.call("fs/echo", {"text": "late"})).text == "late"
        assert rest.mcp.status()[0].state == "ready"
    # Other settings, or a pin that is gone: nothing is taken from the cache.
    rest = open_rest({"fs": fake_server(startup_timeout_sec=9.0)})
    assert not [tool for tool in rest.tools if tool.mcp]
    (toolrest_home / "mcp" / "pins.json").unlink()
    assert not [tool for tool in open_rest(servers).tools if tool.mcp]
