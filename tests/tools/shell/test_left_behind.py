"""What a confined command leaves running is dead before the command is answered.

Its names are let go then: whatever still ran could take one that has to stay missing.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest

pytestmark = pytest.mark.needs("namespaces")

GRABBER = """
import os, sys, time

for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        while True:
            for name in (".envrc", ".vscode", ".codex", ".mcp.json"):
                for path in (name + "/x", name):
                    try:
                        os.mkdir(path)
                    except OSError:
                        pass
time.sleep(0.02)
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def running(mark: str) -> list[str]:
    """Processes with this word in their arguments that are not dead."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in words:  # a dead one has none
            found.append(pid)
    return found


def arguments(tool: str, line: str) -> dict[str, Any]:
    if tool == "shell":
        return {"command": ["sh", "-c", line]}
    return {"cmd": line, "login": False}


@pytest.mark.parametrize("tool", ["exec_command", "shell"])
async def test_nothing_runs_any_more_when_the_answer_is_there(work: Path, tool: str) -> None:
    mark = f"98{os.getpid()}"
    daemon = f"setsid sleep {mark} </dev/null >/dev/null 2>&1 &"
    line = f"for i in 1 2 3 4 5 6 7 8 9 10; do {daemon} {daemon} done; echo done"
    async with Toolrest(work) as rest:
        for _ in range(3):
            output = await rest.call(tool, arguments(tool, f"{line} "))
            assert "done" in output.text
            assert not running(mark)
            assert os.listdir(work) == []


@pytest.mark.slow
async def test_no_daemon_takes_a_name_that_is_let_go(work: Path) -> None:
    (work / "grab.py").write_text(GRABBER)
    async with Toolrest(work, settings={"checkpoints.enabled": False}) as rest:
        for number in range(12):
            line = f"{shlex.quote(sys.executable)} grab.py {number}"
            assert (await rest.call("exec_command", {"cmd": line, "login": False})).success
            assert os.listdir(work) == ["grab.py"]
