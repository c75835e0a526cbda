"""Makes a home folder with everything that Toolrest keeps, for the tests of later releases.

    python -m tests.cli.make_home tests/data/home-VERSION

It works at a fixed path, so that no path of a machine is recorded; tests move what they copy. Left
out are checkpoints, locks, caches and what belongs to running sessions. Needs a sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from toolrest import ApprovalRequest, Toolrest
from toolrest.config import Config
from toolrest.config.loader import load
from toolrest.testing import Call, Fail, ScriptedServer

PLACE = "/tmp/toolrest-made-home"
PROJECT = f"{PLACE}/project"
HOME = f"{PLACE}/home"
STORE = "batch-store"
TASKS = '{"id": "one", "prompt": "say hello"}\n{"id": "two", "prompt": "say it in rhymes"}\n'
SERVER_URL = "http://127.0.0.1:9/v1"
TOOLREST = str(Path(sys.executable).parent / "toolrest")
FAR_FUTURE = 4_000_000_000.0
LEFT_OUT = ("batch", "cache", "checkpoints", "run", "tools.json", "*.lock")

SETTINGS = f"""\
# Settings as users write them.
model = "gpt-5.5"
model_provider = "scripted"
approval_policy = "untrusted"
sandbox_mode = "workspace-write"

[model_providers.scripted]
name = "scripted"
base_url = "{SERVER_URL}"
wire_api = "responses"

[approvals.tools]
webfetch = "deny"

[approvals.paths]
"vendor" = "deny"

[profiles.careful]
approval_policy = "strict"
"""
RULES = """\
prefix_rule(pattern=["git", ["push", "fetch"]], decision="prompt", justification="the network")
prefix_rule(pattern=["make", "deploy"], decision="forbidden")
"""
NOTES_SERVER = r"""#!/bin/sh
# A server over standard input and output that needs no package and no interpreter of its own.
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s\n' "$line" | sed -n 's/.*"id": *\([^,}]*\).*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},
      "serverInfo":{"name":"notes","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"count","description":"Count the notes.",
      "inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) answer '{"content":[{"type":"text","text":"3 notes"}]}' ;;
  esac
done
""".replace("\n      ", "")


def make_project(folder: Path) -> None:
    """The project that the home knows: a few files and an MCP server."""
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "guide.md").write_text("# Guide\n")
    (folder / "hello.txt").write_text("hello\n")
    (folder / "Makefile").write_text("lint check:\n\t@echo $@ is done\n")
    server = folder / "notes-server"
    server.write_text(NOTES_SERVER)
    server.chmod(0o755)


def run(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [TOOLREST, *arguments],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode in codes, (arguments, done.stdout, done.stderr)
    return done.stdout


def sessions() -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("sessions", "list", "--json").splitlines()]


def record_sessions() -> None:
    """One that was resumed, a fork of it that went on by itself, one that was killed."""
    edit = {"file_path": "hello.txt", "old_string": "hello", "new_string": "hello, world"}
    script: list[Any] = [
        Call("read_file", {"file_path": "hello.txt"}),
        Call("edit_file", edit),
        "The greeting is longer now.",
        Call("save_memory", {"text": "Be brief.", "scope": "global"}),
        "I made a note.",
        "The fork says so.",
        Call("exec_command", {"cmd": "echo started; sleep 1000", "yield_time_ms": 30_000}),
    ]
    with ScriptedServer(script) as server:
        serve = ("-a", "on-request", "-c", f"model_providers.scripted.base_url={server.url}")
        run("exec", *serve, "make the greeting longer")
        (first,) = sessions()
        run("exec", *serve, "-c", "on_ask=allow", "--resume", first["id"], "make a note of it")
        fork = run("sessions", "fork", first["id"]).strip()
        run("exec", *serve, "--resume", fork, "who are you?")
        command = [TOOLREST, "exec", "--json", *serve, "start the server"]
        with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            next(line for line in killed.stdout if "command_execution" in line)
            killed.send_signal(signal.SIGKILL)


def record_batch() -> None:
    """A batch of two tasks, with its store in the home: one that succeeded and one that failed."""
    Path(PROJECT, "tasks.jsonl").write_text(TASKS)
    with ScriptedServer(["Hello.", Fail(400, "bad", "no rhymes")]) as server:
        base = f"model_providers.scripted.base_url={server.url}"
        store = ("--store", f"{HOME}/{STORE}", "-j", "1")
        run("batch", "tasks.jsonl", *store, "-c", base, codes=(1,))
    for path in Path(HOME, STORE).rglob("*.json"):  # not this machine's name
        path.write_text(path.read_text().replace(f'"{socket.gethostname()}"', '"machine"'))


def config(**flags: Any) -> Config:
    return load(workspace=PROJECT, flags=flags)


async def call(name: str, arguments: dict[str, Any], answer: str, **flags: Any) -> None:
    asked: list[ApprovalRequest] = []

    def on_ask(request: ApprovalRequest) -> str:
        asked.append(request)
        return answer

    async with Toolrest(PROJECT, config=config(**flags), on_ask=on_ask) as rest:
        output = await rest.call(name, arguments)
    assert asked
    assert output.success, output.text


async def record_approvals() -> None:
    """Grants for the project and for the user, a rule, questions that wait."""
    await call("exec_command", {"cmd": "make lint"}, "approved_for_project")
    guide = {"file_path": "docs/guide.md", "content": "# Guide\n\nRead me.\n"}
    await call("write_file", guide, "approved_for_user")
    await call("exec_command", {"cmd": "make check"}, "approved_with_rule")
    later = config(on_ask="defer")
    with mock.patch("time.time", return_value=FAR_FUTURE):  # a question waits a month at most
        async with Toolrest(PROJECT, config=later) as rest:
            for command in ("make install", "make clean"):
                await rest.call("exec_command", {"cmd": command})
            _, clean = sorted(rest.pending, key=lambda pending: "clean" in pending.arguments)
    run("approvals", "approve", clean.id)


def main() -> None:
    target = Path(sys.argv[1])
    if target.exists():
        raise SystemExit(f"{target} is there already; a release's home is made once")
    Path(PLACE).mkdir(mode=0o700)  # fails where another one works
    try:
        os.environ.update(TOOLREST_HOME=HOME, HOME=f"{PLACE}/user")
        Path(HOME, "rules").mkdir(parents=True, mode=0o700)
        Path(HOME, "config.toml").write_text(SETTINGS)
        Path(HOME, "rules", "team.rules").write_text(RULES)
        make_project(Path(PROJECT))
        run("trust")
        run("config", "set", "tools.disabled", '["web_search"]')
        run("mcp", "add", "notes", "--", f"{PROJECT}/notes-server")
        run("mcp", "list", codes=(0, 1))
        record_sessions()
        record_batch()
        asyncio.run(record_approvals())
        shutil.copytree(HOME, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    finally:
        shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
