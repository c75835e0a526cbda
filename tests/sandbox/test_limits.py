"""Limits on what commands may take: set by a person, held by the kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.machine import require

from toolrest.process.limits import Limits

pytestmark = pytest.mark.slow

HOST = """
import asyncio, json, sys
from toolrest import Toolrest

async def main(wish):
    rest = Toolrest(
        wish["workspace"], sandbox_mode=wish["mode"], approval_policy="never",
        settings={"limits": wish["limits"], "tools": {"shell_type": "default"}},
    )
    async with rest:
        calls = [await rest.call("shell", arguments) for arguments in wish["calls"]]
    return [call.text for call in calls]

print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
"""

FORKS = """
import os, signal
count = 0
try:
    while count < 400:
        if os.fork() == 0:
            signal.pause()
        count += 1
except OSError as error:
    print(count, error.strerror, flush=True)
"""
BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)
"""
MEMORY = "try: bytearray(300_000_000)\nexcept MemoryError: print('refused')"
MODES = ["workspace-write", "danger-full-access"]

Session = Callable[..., list[str]]


@pytest.fixture
def session(place: Path, run_as: Callable[..., str], python: str) -> Session:
    """Commands of one session, run as the user of the test."""
    workspace = place / "work"

    def run(mode: str, limits: dict[str, Any], *calls: dict[str, Any]) -> list[str]:
        if mode == "workspace-write":
            require("sandbox")
        wish = {"workspace": str(workspace), "mode": mode, "limits": limits, "calls": calls}
        said = run_as(python, "-c", HOST, json.dumps(wish))
        texts: list[str] = json.loads(said)
        return texts

    return run


def shell(*argv: str, seconds: float = 60) -> dict[str, Any]:
    return {"command": list(argv), "timeout_ms": int(seconds * 1000)}


def out(text: str) -> str:
    output: str = json.loads(text.split("\n[toolrest]")[0])["output"]
    return output


@pytest.mark.parametrize("mode", MODES)
def test_size_memory_and_core(session: Session, python: str, mode: str) -> None:
    limits = {"file_size": "1MB", "memory": "100MB"}
    big, memory, core = session(
        mode,
        limits,
        shell("sh", "-c", "head -c 3000000 /dev/zero > big; wc -c < big"),
        shell(python, "-c", MEMORY),
        shell("sh", "-c", "ulimit -c; ulimit -Hc; kill -SEGV $$"),
    )
    assert out(big).split()[0] == "1000000", big
    assert out(memory) == "refused\n"
    assert out(core).split()[:2] == ["0", "0"]


@pytest.mark.parametrize("mode", MODES)
def test_a_fork_bomb_is_bounded_and_gone(
    session: Session, python: str, user: str, mode: str
) -> None:
    if user == "root":
        (said,) = session(mode, {"processes": 40}, shell("true"))
        held = "[toolrest] limits.processes: not enforced" not in said
        assert held or "root is exempt" in said
        return
    mark = f"bomb-{os.getpid()}-{mode}"
    forks, bomb, after = session(
        mode,
        {"processes": 40},
        shell(python, "-c", FORKS),
        shell(python, "-c", BOMB, mark, seconds=1),
        shell("echo", "still fine"),
    )
    # The kernel counts all of a user's processes, also those of tests that run beside this one.
    assert 1 <= int(out(forks).split()[0]) <= 200, forks
    assert "timed out" in bomb
    assert out(after) == "still fine\n"
    assert not any(mark in arguments(pid) for pid in os.listdir("/proc") if pid.isdigit())


def arguments(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_what_a_control_group_took_is_not_asked_of_processes() -> None:
    limits = Limits(processes=50, memory=1 << 30, file_size=1 << 20)
    assert limits.for_cgroup() == {"pids.max": "50", "memory.max": str(1 << 30)}
    assert len(limits.for_process(("pids.max", "memory.max"))) == 1
    assert limits.unmet(("pids.max",)) == ()
    assert bool(limits.unmet(())) is (os.geteuid() == 0)
    assert not Limits()
    assert Limits().for_process(()) == ()
