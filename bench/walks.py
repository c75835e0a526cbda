"""The walk of a call through the source: how many functions, files and rooms a reader passes.

Every Python call inside `toolrest` is recorded with sys.setprofile (coroutine resumptions count);
comprehensions and lambdas are left out. The first answer warms up, the second is counted; printed
is the median of nine runs, since one in which something came a millisecond later has some forty
calls more. `read_file`, an `exec_command` that the sandbox denies and that is then approved to run
outside, `apply_patch`, and a tool of an MCP server.

    python bench/walks.py [read|exec|patch|mcp]
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import toolrest
from toolrest import Toolrest

ROOT = str(Path(toolrest.__file__).parent) + "/"
NAMELESS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<lambda>", "<setcomp>", "<module>")
RUNS = 9
PATCH = "*** Begin Patch\n*** Update File: b.txt\n@@\n-%s\n+%s\n two\n*** End Patch\n"
SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("demo")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""
EXPECTED = {"read": "L1: one", "exec": "exited with code 0", "patch": "M b.txt", "mcp": "'3'"}
calls: list[tuple[str, str]] = []
recording = threading.Event()


def profile(frame: Any, event: str, _: Any) -> None:
    code = frame.f_code
    if recording.is_set() and event == "call" and code.co_filename.startswith(ROOT):
        calls.append((code.co_filename[len(ROOT) :], code.co_qualname))


def changes(names: list[str]) -> int:
    return sum(a != b for a, b in itertools.pairwise(names))


def counts() -> dict[str, Any]:
    kept = [c for c in calls if not c[1].endswith(NAMELESS)]
    files = [file for file, _ in kept]
    rooms = [file.split("/")[0] for file in files]
    per_room = collections.Counter(file.split("/")[0] for file in set(files))
    return {
        "calls": len(kept),
        "functions": len(set(kept)),
        "files": len(set(files)),
        "rooms": len(set(rooms)),
        "room changes": changes(rooms),
        "file changes": changes(files),
        "files a room": per_room.most_common(),
    }


def show(name: str, runs: list[dict[str, Any]]) -> None:
    median = {key: statistics.median_low(run[key] for run in runs) for key in runs[0]}
    middle = next(run for run in runs if run["files"] == median["files"])["files a room"]
    print(f"{name:5} " + ", ".join(f"{median[key]} {key}" for key in list(median)[:-1]))
    print("      files a room: " + ", ".join(f"{room} {n}" for room, n in middle), flush=True)


def reply(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "1", "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


async def walk(name: str, rest: Toolrest, first: dict[str, Any], second: dict[str, Any]) -> None:
    await rest.answer(first)
    calls.clear()
    recording.set()
    sys.setprofile(profile)
    outputs = await rest.answer(second)
    sys.setprofile(None)
    recording.clear()
    assert EXPECTED[name] in str(outputs), outputs
    print(json.dumps(counts()))


async def measure(which: str, folder: Path) -> None:
    place = folder / "workspace"
    place.mkdir()
    for name in ("a.txt", "b.txt"):
        (place / name).write_text("one\ntwo\n")
    (folder / "server.py").write_text(SERVER)
    options: dict[str, Any] = {"home": f"{folder}/home"}
    offered = {
        "read": ["read_file"],
        "patch": ["apply_patch"],
        "exec": ["exec_command"],
        "mcp": ["mcp"],
    }
    options["tools"] = offered[which]
    settings: dict[str, Any] = {}
    if which == "read":
        first = second = reply("read_file", {"file_path": "a.txt"})
    elif which == "patch":
        first = reply("apply_patch", {"input": PATCH % ("one", "uno")})
        second = reply("apply_patch", {"input": PATCH % ("uno", "one")})
        options |= {"model": "gpt-5-codex"}
    elif which == "exec":
        first = second = reply("exec_command", {"cmd": f"touch {folder}/outside", "login": False})
        options |= {"model": "gpt-5-codex", "approval_policy": "on-failure"}
        settings |= {"tools.shell_type": "unified_exec"}
    else:
        first = second = reply("mcp__demo__add", {"a": 1, "b": 2})
        settings |= {
            "mcp_servers.demo.command": sys.executable,
            "mcp_servers.demo.args": [f"{folder}/server.py"],
            "mcp_servers.demo.default_tools_approval_mode": "approve",
            "sandbox_mode": "danger-full-access",
        }
    async with Toolrest(place, on_ask=lambda _: True, settings=settings, **options) as rest:
        await rest.wait_for_mcp()
        await walk(which, rest, first, second)


def main() -> None:
    if len(sys.argv) == 1:  # a process for each: what one has loaded would shorten the next
        for which in ("read", "exec", "patch", "mcp"):
            command = [sys.executable, __file__, which]
            done = [subprocess.run(command, check=True, stdout=-1) for _ in range(RUNS)]
            show(which, [json.loads(run.stdout) for run in done])
        return
    del sys.path[0]  # bench/mcp.py is not the package mcp
    threading.setprofile(profile)  # before any worker thread starts
    # Not below /tmp, which commands may write.
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".toolrest-walks-") as folder:
        asyncio.run(measure(sys.argv[1], Path(folder)))


main()
