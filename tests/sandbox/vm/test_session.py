"""Sessions whose commands run in a machine, through the tools that a model calls."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.cli.run.demo_task import PROMPT, SECRET, script, write_project
from toolrest.testing.script import Call
from toolrest.testing.server import ScriptedServer

pytestmark = pytest.mark.timeout(180)
TOOLREST = str(Path(sys.executable).parent / "toolrest")


class Rest:
    """A session in a machine."""

    def __init__(self, rest: Toolrest, workspace: Path) -> None:
        self.rest = rest
        self.workspace = workspace

    async def run(self, line: str, **more: Any) -> str:
        """What a model reads of a command, to its end however slow the machine is."""
        given = {"cmd": line, "login": False, "yield_time_ms": 30_000, **more}
        said = [(await self.rest.call("exec_command", given)).text]
        while not more.get("tty") and (number := session_in(said[-1])):
            said.append(await self.type_in(number, ""))
        return "\n".join(said)

    async def type_in(self, number: int, chars: str, wait_ms: int = 30_000) -> str:
        """What a model reads of a command that it types into."""
        given = {"session_id": number, "chars": chars, "yield_time_ms": wait_ms}
        return (await self.rest.call("write_stdin", given)).text


def session_in(text: str) -> int | None:
    found = re.search(r"session ID (\d+)", text)
    return int(found[1]) if found else None


def opened(home: Path, workspace: Path, **settings: Any) -> Toolrest:
    given = {
        "sandbox_policy": "vm",
        "sandbox": {"vm": {"accel": "tcg"}},
        "checkpoints": {"enabled": False},
        **settings,
    }
    return Toolrest(str(workspace), home=str(home), sandbox_mode="workspace-write", settings=given)


@pytest.fixture
async def rest(furnish: Any, workspace: Path, tmp_path: Path) -> AsyncIterator[Rest]:
    async with opened(furnish(tmp_path / "home"), workspace) as made:
        yield Rest(made, workspace)


def machines() -> set[int]:
    """QEMU's processes."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"qemu-system" in (folder / "cmdline").read_bytes().split(b"\0")[0]:
                found.add(int(folder.name))
        except OSError:
            continue
    return found


async def test_smoke(rest: Rest) -> None:
    """The one that every run has: a command, its files, its exit code, what it may not do."""
    (rest.workspace / ".env").write_text("KEY=secret\n")
    script = "uname -r; echo hi > made; grep -rs KEY= .; touch /etc/x; exit 3"
    (rest.workspace / "script").write_text(script)
    said = await rest.run("sh script")
    assert "Process exited with code 3" in said
    assert (rest.workspace / "made").read_text() == "hi\n"
    assert "secret" not in said
    assert "Read-only file system" in said
    assert "the sandbox (vm) blocked" in said


@pytest.mark.system
async def test_commands(rest: Rest) -> None:
    """One machine: exit codes, signals, output, files of the host, what is left running."""
    assert "code 143" in await rest.run("kill -TERM $$")
    assert "code 127" in await rest.run("no-such-program")
    long = await rest.run("seq 200000; echo err >&2", max_output_tokens=200)
    assert "200000" in long
    (rest.workspace / "from host").write_text("one")
    assert "one" in await rest.run("cat 'from host'")
    (rest.workspace / "from host").write_text("two")
    assert "two" in await rest.run("cat 'from host'")
    assert "made" in await rest.run("mkfifo /tmp/p && [ -p /tmp/p ] && echo made")
    # What a command starts is gone with it.
    (rest.workspace / "beat").write_text("while :; do date +%N >> at; sleep 0.1; done")
    left = "setsid sh beat > /dev/null 2>&1 &"
    given = {"command": ["sh", "-c", f"{left} sleep 1000"], "timeout_ms": 5000}
    assert "124" in (await rest.rest.call("shell", given)).text
    for line in ("true", f"{left} sleep 1"):
        await rest.run(line)
        last = (rest.workspace / "at").read_text()
        await rest.run("sleep 1")
        assert (rest.workspace / "at").read_text() == last != ""
    # A protected name, and the way to ask.
    (rest.workspace / "protected").write_text("touch .vscode/x")
    assert "the sandbox (vm) blocked writing to" in await rest.run("sh protected")
    # A file that is to be hidden, made by a command, is so for the next one.
    (rest.workspace / "write").write_text("echo KEY=1 > .env")
    assert ".env:KEY=1" in await rest.run("sh write; grep -rs KEY=1 .")
    said = await rest.run("grep -r KEY=1 .")
    assert ".env:KEY=1" not in said
    assert "Permission denied" in said
    # Nothing of a secret is in an argument list.
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in machines()]
    assert lines
    assert not any(os.fsencode(rest.workspace) in line for line in lines)


@pytest.mark.system
async def test_allowed_hosts_are_reached_and_no_others(
    furnish: Any, workspace: Path, tmp_path: Path
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        body = b"x" * 1_000_000
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fetch = (
        "import os, sys, urllib.request;"
        "os.environ.pop('no_proxy'); os.environ.pop('NO_PROXY');"
        "opener = urllib.request.build_opener("
        "urllib.request.ProxyHandler({'http': 'http://127.0.0.1:3128'}));"
        "print(len(opener.open(sys.argv[1], timeout=60).read()))"
    )
    hosts = {"tool_security": {"allowed_network_domains": ["127.0.0.1"]}}
    async with server, opened(furnish(tmp_path / "home"), workspace, **hosts) as made:
        rest = Rest(made, workspace)
        (workspace / "fetch.py").write_text(fetch)
        said = await rest.run(f"/usr/bin/python3 fetch.py http://127.0.0.1:{port}/")
        assert "1000000" in said
        assert "403" in await rest.run("/usr/bin/python3 fetch.py http://example.org/")
        assert "lo" in await rest.run("ls /sys/class/net; cat /proc/net/dev")


@pytest.mark.system
def test_the_demo_task_ends_repaired(furnish: Any, tmp_path: Path) -> None:
    """`toolrest exec` against the scripted server."""
    project = Path(write_project(str(tmp_path)))
    home = furnish(tmp_path / "home")
    replies = script()
    for reply in replies:
        for call in reply if isinstance(reply, list) else ():
            if isinstance(call, Call) and call.name == "exec_command":
                assert isinstance(call.arguments, dict)
                call.arguments["yield_time_ms"] = 30_000  # on a machine that has much to do
    with ScriptedServer(replies) as server:
        (home / "config.toml").write_text(
            'model = "gpt-5.5"\nmodel_provider = "scripted"\nsandbox_policy = "vm"\n'
            '[sandbox.vm]\naccel = "tcg"\n'
            f'[model_providers.scripted]\nname = "s"\nbase_url = "{server.url}"\n'
        )
        done = subprocess.run(
            [TOOLREST, "exec", "--json", "-s", "workspace-write", "--skip-git-repo-check", PROMPT],
            cwd=project,
            env=os.environ
            | {"TOOLREST_HOME": str(home), "SHOP_API_KEY": SECRET, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=150,
        )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    items = [line["item"] for line in lines if line["type"] == "item.completed"]
    codes = [item["exit_code"] for item in items if item["type"] == "command_execution"]
    assert codes[-1] == 0
    assert "price * count" in (project / "cart.py").read_text()
