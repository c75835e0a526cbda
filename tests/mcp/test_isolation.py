"""Servers cannot hurt the session, each other, or the machine."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock

from toolrest import ApprovalRequest, Toolrest
from toolrest.mcp import connection

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]


@pytest.mark.slow
async def test_twenty_servers_of_which_fifteen_are_broken(
    open_rest: Open,
    fake_server: Fake,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes = ["plain", "hang", "crash", "junk"]
    servers = {
        f"{mode}{number}": fake_server(mode, f"{mode}{number}", startup_timeout_sec=300.0)
        for mode in modes
        for number in range(5)
    }
    rest = open_rest(servers)
    async with rest:
        async with rest.turn():
            specs = rest.specs("responses")
        assert "read_file" in json.dumps(specs)
        assert rest.mcp is not None
        # Those that never answer were not waited for; bench/mcp.py has how long the rest takes.
        states = {status.name: status for status in rest.mcp.status()}
        assert not [name for name in states if states[name].state == "failed" and "hang" in name]
        await rest.wait_for_mcp(*(f"plain{number}" for number in range(5)))
        for number in range(5):
            text = f"hello {number}"
            assert (await rest.call(f"plain{number}/echo", {"text": text})).text == text
        await rest.wait_for_mcp(*(f"crash{number}" for number in range(5)))
        while len(list((tmp_path / "workspace").glob("junk*.said"))) < 5:
            await asyncio.sleep(0.01)
        for _ in range(50):
            await asyncio.sleep(0)  # what they said is on its way through the loop
        # Who has failed is not tried again before the end.
        monkeypatch.setattr(connection, "FIRST_PAUSE", 900.0)
        monkeypatch.setattr(connection, "LONGEST_PAUSE", 900.0)
        clock.skip(300)
        await rest.wait_for_mcp()
        states = {status.name: status for status in rest.mcp.status()}
        for number in range(5):
            assert states[f"plain{number}"].state == "ready"
            assert "cannot find my own feet" in states[f"crash{number}"].reason
            assert "startup_timeout_sec" in states[f"hang{number}"].reason
            assert "no messages" in states[f"junk{number}"].reason
        unknown = await rest.call("hang0/echo")
        assert "the MCP server hang0 is not available" in unknown.text


async def test_a_server_has_an_environment_of_its_own(
    open_rest: Open, fake_server: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-should-never-be-seen")
    monkeypatch.setenv("MY_TOKEN", "tok-only-where-asked")
    monkeypatch.setenv("SOME_SETTING", "harmless")
    rows = {
        "bare": fake_server(),
        "given": fake_server(
            **{"env.COPY": "x-${SOME_SETTING}-${UNSET:-none}", "env.OPENAI_API_KEY": "k"},
            **{"env.PRIVATE_KEY": "written-into-the-settings"},
            env_vars=["MY_TOKEN"],
        ),
        "greedy": fake_server(env={"K": "${OPENAI_API_KEY}"}),
        "lacking": fake_server(env={"K": "${NOT_SET_AT_ALL}"}),
    }
    async with open_rest(rows) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        bare = (await rest.mcp.call("bare", "env"))["content"][0]["text"]
        assert not {"OPENAI_API_KEY", "MY_TOKEN", "SOME_SETTING"} & json.loads(bare).keys()
        assert "TOOLREST_HOME" not in json.loads(bare)
        given = json.loads((await rest.mcp.call("given", "env"))["content"][0]["text"])
        assert given["COPY"] == "x-harmless-none"
        assert given["MY_TOKEN"] == "tok-only-where-asked"
        assert "OPENAI_API_KEY" not in given
        # What a model sees of it is redacted.
        shown = (await rest.call("given/env")).text
        assert "harmless" in shown
        assert "tok-only-where-asked" not in shown
        assert "written-into-the-settings" not in shown
        reasons = {status.name: status.reason for status in rest.mcp.status()}
        assert "pays for the model" in reasons["greedy"]
        assert "needs the variable NOT_SET_AT_ALL" in reasons["lacking"]


@pytest.mark.slow
async def test_a_missing_variable_is_named(
    open_rest: Open, fake_server: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALKING_STICK", "oak-and-silver")
    async with open_rest({"lame": fake_server("crash")}) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert "list it in mcp_servers.lame.env_vars" in rest.mcp.status()[0].reason


@pytest.mark.needs("sandbox")
async def test_a_server_is_confined_to_the_sessions_files(
    open_rest: Open, fake_server: Fake, tmp_path: Path
) -> None:
    outside, extra = tmp_path / "outside", tmp_path / "extra"
    outside.mkdir()
    extra.mkdir()
    rows = {"fs": fake_server(), "more": fake_server(writable_roots=[str(extra)])}
    async with open_rest(rows) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        inside = tmp_path / "workspace" / "made"
        assert (await rest.call("fs/files", {"text": str(inside)})).text == "written"
        assert inside.read_text() == "written"
        assert (await rest.call("fs/files", {"text": str(outside / "x")})).failed
        assert (await rest.call("fs/files", {"text": str(extra / "x")})).failed
        assert (await rest.call("more/files", {"text": str(extra / "x")})).text == "written"
        caches = []
        for name in rows:
            env = json.loads((await rest.mcp.call(name, "env"))["content"][0]["text"])
            caches.append(Path(env["UV_CACHE_DIR"]).parent)
            kept = {"text": str(caches[-1] / "kept")}
            assert (await rest.call(f"{name}/files", kept)).text == "written"
        # No other server's: a server cannot reach what another one will run from.
        assert (await rest.call("fs/files", {"text": str(caches[1] / "x")})).failed
    assert not list(outside.iterdir())
    async with open_rest({"fs": fake_server()}, sandbox_mode="read-only") as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("fs/files", {"text": str(inside)})).failed


@pytest.mark.slow
@pytest.mark.needs("namespaces")
async def test_the_network_of_a_server(open_rest: Open, fake_server: Fake) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = {"text": str(listener.getsockname()[1])}
    rows = {
        "on": fake_server(),
        "off": fake_server(network=False),
        "some": fake_server(network=["good.example"]),
    }
    try:
        async with open_rest(rows) as rest:
            await rest.wait_for_mcp()
            assert (await rest.call("on/net", port)).text == "connected"
            assert (await rest.call("off/net", port)).failed
            assert (await rest.call("some/net", port)).failed
            assert (await rest.call("some/echo", {"text": "alive"})).text == "alive"
        # The session's own list is a ceiling for every server.
        for listed in ([], ["other.example"], ["good.example"]):
            settings = {"tool_security.allowed_network_domains": listed}
            async with open_rest(rows, settings=settings) as rest:
                await rest.wait_for_mcp()
                assert (await rest.call("on/net", port)).failed
                assert (await rest.call("on/echo", {"text": "alive"})).text == "alive"
    finally:
        listener.close()


async def test_allowed_domains_bind_servers_over_http(open_rest: Open) -> None:
    rows = {"web": {"url": "https://other.example/mcp"}}
    settings = {"tool_security.allowed_network_domains": ["good.example"]}
    async with open_rest(rows, settings=settings) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert "tool_security.allowed_network_domains" in rest.mcp.status()[0].reason


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["at once", "starting", "ready", "calling"])
async def test_closing_at_any_moment_leaves_nothing_behind(
    open_rest: Open, fake_server: Fake, moment: str
) -> None:
    rows = {"a": fake_server(), "b": fake_server("hang"), "c": fake_server("junk")}
    rest = open_rest(rows)
    calls: list[asyncio.Future[Any]] = []
    async with rest:
        assert rest.mcp is not None
        if moment != "at once":
            rest.mcp.start(delay=0.0)
            for connection in rest.mcp.connections.values():
                connection.start()
            await asyncio.sleep(0.05)
        if moment in ("ready", "calling"):
            await rest.wait_for_mcp("a")
        if moment == "calling":
            calls = [asyncio.ensure_future(rest.call("a/sleep")) for _ in range(3)]
            await asyncio.sleep(0.1)
    for call in calls:
        assert (await call).failed
    gc.collect()
    own = {asyncio.current_task()}
    assert {task for task in asyncio.all_tasks() if not task.done()} == own
    await asyncio.sleep(0)
    assert not [name for name in _children() if "fake_server" in name]


async def test_sessions_close_in_any_order(open_rest: Open, fake_server: Fake) -> None:
    one, two = open_rest({"a": fake_server()}), open_rest({"a": fake_server()})
    await one.__aenter__()
    await two.__aenter__()
    await asyncio.gather(one.wait_for_mcp(), two.wait_for_mcp())
    await one.aclose()
    assert (await two.call("a/echo", {"text": "still here"})).text == "still here"
    await two.aclose()


async def test_risk_and_schedule_follow_the_settings_and_not_the_server(
    open_rest: Open, fake_server: Fake
) -> None:
    rows = {
        "plain": fake_server(),
        "trusted": fake_server(trusted=True),
        "beside": fake_server(supports_parallel_tool_calls=True),
    }
    async with open_rest(rows) as rest:
        await rest.wait_for_mcp()
        table = {str(row["name"]): row for row in rest.table()}
        assert table["mcp__plain__look"]["risk"] == "execute"
        assert table["mcp__trusted__look"]["risk"] == "execute"
        assert table["mcp__plain__wipe"]["risk"] == "critical"
        parallel = {name for name, row in table.items() if row["parallel"] and "mcp__" in name}
        assert "mcp__plain__look" not in parallel
        assert "mcp__trusted__look" in parallel
        assert "mcp__trusted__echo" not in parallel
        assert "mcp__beside__echo" in parallel


@pytest.mark.parametrize(
    ("policy", "row", "tool", "runs"),
    [
        ("on-request", {}, "echo", False),
        ("never", {}, "echo", True),
        ("never", {}, "wipe", False),
        ("never", {"default_tools_approval_mode": "prompt"}, "echo", False),
        ("on-request", {"default_tools_approval_mode": "approve"}, "echo", True),
        ("on-request", {"default_tools_approval_mode": "approve"}, "wipe", True),
        ("on-request", {"tools.wipe.approval_mode": "approve"}, "wipe", True),
        ("strict", {}, "look", False),
    ],
)
async def test_approval(
    open_rest: Open,
    fake_server: Fake,
    policy: str,
    row: dict[str, Any],
    tool: str,
    runs: bool,
) -> None:
    servers = {"fs": fake_server(**row)}
    async with open_rest(servers, approval_policy=policy, on_ask="deny") as rest:
        await rest.wait_for_mcp()
        assert (await rest.call(f"fs/{tool}", {"text": "x"})).failed is not runs


async def tainted(rest: Toolrest) -> None:
    """Read a file and a server's answer: what the answer says could now send the file out."""
    await rest.wait_for_mcp()
    assert not (await rest.call("read_file", {"file_path": "fake_server.py"})).failed
    assert not (await rest.call("fs/echo", {"text": "hi"})).failed


@pytest.mark.parametrize(
    ("row", "runs"),
    [
        ({"default_tools_approval_mode": "approve"}, False),
        ({"default_tools_approval_mode": "approve", "tools.echo.approval_mode": "approve"}, True),
        ({"default_tools_approval_mode": "approve", "network": ["example.com"]}, False),
        pytest.param(
            {"default_tools_approval_mode": "approve", "network": False},
            True,
            marks=pytest.mark.needs("sandbox"),
        ),
    ],
)
async def test_approved_tools_after_external_content(
    open_rest: Open, fake_server: Fake, row: dict[str, Any], runs: bool
) -> None:
    """Whose server cannot reach out, or whose tool was approved by name, is not asked about."""
    async with open_rest({"fs": fake_server(**row)}, on_ask=None) as rest:
        await tainted(rest)
        output = await rest.call("fs/echo", {"text": "again"})
        assert output.failed is not runs
        if not runs:
            assert 'mcp_servers.fs.tools.echo.approval_mode = "approve"' in output.text


async def test_a_session_grant_after_external_content_lasts(
    open_rest: Open, fake_server: Fake
) -> None:
    asked: list[str] = []

    def for_session(request: ApprovalRequest) -> str:
        asked.append(request.rule)
        scopes = [choice.scope for choice in request.choices]
        assert scopes[:2] == ["once", "session"]
        if request.rule == "external.content":
            assert scopes == ["once", "session"]
        return "approved_for_session"

    async with open_rest({"fs": fake_server()}, on_ask=for_session) as rest:
        await tainted(rest)
        for words in ("one", "two", "three"):
            assert not (await rest.call("fs/echo", {"text": words})).failed
    # The grant from before the answer was read does not count for what came after it.
    assert asked == ["table.execute", "external.content"]


async def test_starting_a_server_is_in_the_audit_log(
    open_rest: Open, fake_server: Fake, toolrest_home: Path
) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        await rest.wait_for_mcp()
        await rest.call("fs/echo", {"text": "x"})
    lines = "".join(path.read_text() for path in (toolrest_home / "audit").glob("*.jsonl"))
    assert "mcp_server_start" in lines
    assert "fake_server.py" in lines
    assert "mcp__fs__echo" in lines


def _children() -> list[str]:
    """The command lines of our own processes."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                line = Path(entry.path, "cmdline").read_text()
                parent = Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()[1]
            except OSError:
                continue
            if parent == str(os.getpid()):
                found.append(line)
    return found


def test_the_import_of_the_sdk_waits_for_a_server() -> None:
    import subprocess
    import sys

    code = "import sys, toolrest; toolrest.Toolrest('.'); print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
    assert threading.active_count() >= 1


@pytest.mark.needs("namespaces")
async def test_folders_of_its_own_lift_no_denial(
    open_rest: Open, fake_server: Fake, tmp_path: Path
) -> None:
    workspace, extra = tmp_path / "workspace", tmp_path / "extra"
    for folder in (workspace / "keep", extra):
        folder.mkdir()
    servers = {"fs": fake_server(writable_roots=[str(extra)])}
    settings = {"approvals.paths": {str(workspace / "keep"): "deny"}}
    async with open_rest(servers, settings=settings) as rest:
        await rest.wait_for_mcp()
        await rest.call("fs/files", {"text": str(extra / "made")})
        await rest.call("fs/files", {"text": str(workspace / "keep" / "made")})
    assert (extra / "made").exists()
    assert not (workspace / "keep" / "made").exists()
