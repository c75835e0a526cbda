"""The command line's own process cannot be read through /proc; what it starts can be."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, subprocess, sys
libc = ctypes.CDLL(None)
before = libc.prctl(3, 0, 0, 0, 0)
sys.argv = ["toolrest", "config", "path"]
from toolrest.cli.entry import main
try:
    main()
except SystemExit:
    pass
child = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
print(before, libc.prctl(3, 0, 0, 0, 0), flush=True)
subprocess.run([sys.executable, "-c", child], check=True)
import os
print(os.path.getsize("/proc/self/mountinfo") >= 0, len(os.listdir("/proc/self/fd")) > 0)
"""
LIBRARY = """
import asyncio, ctypes
from toolrest import Toolrest
async def main():
    async with Toolrest(".") as rest:
        await rest.call("list_dir", {"dir_path": "."})
asyncio.run(main())
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


def output(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split("\n")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_the_command_line_is_not_dumpable_and_its_children_are() -> None:
    """Failed before: a program of the same user could read keys out of /proc/PID/environ."""
    assert output(PROGRAM)[1:4] == ["1 0", "1", "True True"]


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_the_library_leaves_its_host_as_it_is() -> None:
    assert output(LIBRARY)[0] == "1"
