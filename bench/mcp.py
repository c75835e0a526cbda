"""MCP: µs per call over the bare SDK, and what 20 servers cost before the first request (D-48).

Both clients talk to the same small server on this machine, in turn, in one process.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SERVER = """
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "bench", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "echo", "description": "Say it again.", "inputSchema": {
            "type": "object", "properties": {"text": {"type": "string"}}}}]}
    else:
        r = {"content": [{"type": "text", "text": m["params"]["arguments"]["text"]}]}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}) + "\\n")
    sys.stdout.flush()
"""
FIRST_REQUEST = """
import asyncio, json, sys, time
from toolrest import Toolrest

async def main():
    count, script, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    settings = {"model": "gpt-5"}
    for n in range(count):
        settings[f"mcp_servers.s{n}.command"] = sys.executable
        settings[f"mcp_servers.s{n}.args"] = ["-S", script]
    env = {"TOOLREST_HOME": folder + f"/home{count}", "HOME": folder, "PATH": "/usr/bin:/bin"}
    began, used = time.perf_counter(), time.process_time()
    async with Toolrest(
            folder, tools=["all"], settings=settings, env=env, home=env["TOOLREST_HOME"]
        ) as rest:
        async with rest.turn():
            rest.specs("responses")
        # What a request is: some work of our own, some waiting for the network.
        for _ in range(20):
            await asyncio.sleep(0.001)
        clock, own = time.perf_counter() - began, time.process_time() - used
        print(json.dumps([clock * 1000, own * 1000]), flush=True)

asyncio.run(main())
"""
CALLS = 1000

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).parent.resolve():
    del sys.path[0]  # or this file would be taken for the SDK


async def rounds(calls: dict[str, Callable[[], Awaitable[object]]]) -> dict[str, float]:
    """The median of µs of our own processor time per call, the clients taking turns.

    Not of the clock: that would measure the server's process and the other ones here.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(11):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(CALLS // 10):
                await call()
            found[name].append((time.process_time() - start) / (CALLS // 10) * 1e6)
    return {name: statistics.median(each[1:]) for name, each in found.items()}


async def per_call(folder: str, script: str) -> dict[str, float]:
    from mcp import ClientSession, StdioServerParameters, stdio_client
    from toolrest import Toolrest
    from toolrest.items import FunctionCall

    numbers = itertools.count()
    settings: dict[str, Any] = {
        "mcp_servers.s.command": sys.executable,
        "mcp_servers.s.args": ["-S", script],
        "mcp_servers.s.default_tools_approval_mode": "approve",
    }
    settings["tool_security.audit_log_enabled"] = False
    env = {"TOOLREST_HOME": f"{folder}/home", "HOME": folder, "PATH": "/usr/bin:/bin"}
    parameters = StdioServerParameters(command=sys.executable, args=["-S", script])
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write) as session,
        Toolrest(
            folder, tools=["all"], settings=settings, env=env, home=env["TOOLREST_HOME"]
        ) as rest,
    ):
        await session.initialize()
        await session.list_tools()
        await rest.wait_for_mcp()
        pool = rest.mcp
        assert pool is not None

        async def bare() -> None:
            await session.call_tool("echo", {"text": str(next(numbers))})

        async def pooled() -> None:
            await pool.call("s", "echo", {"text": str(next(numbers))})

        turn = rest.turn()

        async def gated() -> None:
            number = next(numbers)
            item = FunctionCall(str(number), "mcp__s__echo", {"text": str(number)})
            output = await turn.start(item).output()
            assert not output.failed, output.text

        return await rounds({"bare SDK": bare, "pool": pooled, "whole gate": gated})


def first_request(folder: str, script: str) -> dict[str, float]:
    """Milliseconds to the first request, in processes of their own, taking turns."""
    found: dict[int, list[list[float]]] = {0: [], 20: []}
    for _ in range(9):
        for count, each in found.items():
            done = subprocess.run(
                [sys.executable, "-c", FIRST_REQUEST, str(count), script, folder],
                capture_output=True,
                text=True,
                check=True,
            )
            each.append(json.loads(done.stdout))
    return {
        f"{count} servers{kind}": statistics.median(row[index] for row in each[1:])
        for count, each in found.items()
        for index, kind in enumerate(("", ", processor"))
    }


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        script = Path(folder, "server.py")
        script.write_text(SERVER)
        calls = asyncio.run(per_call(folder, str(script)))
        starts = first_request(folder, str(script))
    row = {
        **{f"{name}, us": round(value, 1) for name, value in calls.items()},
        "added by the gate, us": round(calls["whole gate"] - calls["bare SDK"], 1),
        **{f"first request, {name}, ms": round(value, 1) for name, value in starts.items()},
        "added by 20 servers, ms": round(starts["20 servers"] - starts["0 servers"], 1),
        "added by 20 servers, ms of processor": round(
            starts["20 servers, processor"] - starts["0 servers, processor"], 1
        ),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
