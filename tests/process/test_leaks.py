"""Thousands of commands leave no descriptor, terminal, process or memory behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

LOOP = """
import asyncio, contextlib, gc, os, sys
from toolrest.process.command import Command
from toolrest.process.helper import tree
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.sessions.table import Sessions

def rss(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return len(file.read().split())

def terminals(pid):
    # By descriptor, not in /dev/pts, where everybody else's are too.
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return 0  # gone, or not ours to look at
    count = 0
    for fd in fds:
        with contextlib.suppress(OSError):  # the descriptor of this very look is gone
            name = os.readlink(f"/proc/{pid}/fd/{fd}")
            count += name.startswith(("/dev/pts/", "/dev/ptmx"))
    return count

async def look(owner):
    while owner.children:
        await asyncio.sleep(0.01)
    # A command is over a moment before the keeper that is one too many.
    async with asyncio.timeout(300):
        while children(owner.pid) > 3:
            await asyncio.sleep(0.01)
    gc.collect()
    open_terminals = sum(map(terminals, [os.getpid(), owner.pid, *tree.children(owner.pid)]))
    return len(os.listdir("/proc/self/fd")), open_terminals

async def main(count):
    owner = Owner()
    sessions = Sessions(owner)
    env = {"PATH": "/usr/bin:/bin"}
    async def one(number):
        tty = Command(("/bin/echo", str(number)), "/", env, tty=True)
        result = await sessions.exec(tty, yield_ms=30_000)
        assert result.text == f"{number}\\r\\n", result
        if number % 10 == 0:
            await run(owner, Command(("/bin/echo",), "/", env))
            await run(owner, Command(("/no/program",), "/", env, tty=True))
        if number % 100 == 0:
            sleep = Command(("sleep", "900"), "/", env, tty=True)
            await sessions.stop((await sessions.exec(sleep, yield_ms=250)).session_id)
    for number in range(20):
        await one(number)
    before, memory, helper = await look(owner), rss(os.getpid()), rss(owner.pid)
    assert before[1] == 0
    for number in range(count):
        await one(number)
    assert await look(owner) == before
    assert rss(os.getpid()) - memory < 8000
    assert rss(owner.pid) - helper < 2000
    await owner.aclose()
    print("clean")

asyncio.run(main(int(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_terminals(script: Callable[..., subprocess.Popen[str]], full: bool) -> None:
    out, err = script(LOOP, "5000" if full else "500").communicate(timeout=800)
    assert (out, err) == ("clean\n", "")


def test_an_idle_session_is_small(script: Callable[..., subprocess.Popen[str]]) -> None:
    code = """
import asyncio
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run

async def main():
    owner = Owner()
    await asyncio.gather(*(run(owner, Command(("/bin/true",), "/", {})) for _ in range(20)))
    for _ in range(20):
        await run(owner, Command(("/bin/true",), "/", {}))
    print(owner.pid, flush=True)
    await asyncio.sleep(900)

asyncio.run(main())
"""
    host = script(code)
    assert host.stdout is not None
    helper = int(host.stdout.readline())
    until = time.monotonic() + 60
    while len(own := family(helper)) > 6 and time.monotonic() < until:
        time.sleep(0.01)  # a command is over a moment before the keeper that is one too many
    host.kill()
    host.communicate()
    assert len(own) <= 6, "owner, two keepers, their waiting children"
    assert sum(own) < 24_000, f"kilobytes of their own: {own}"


def family(pid: int) -> list[int]:
    """Private memory of a process and its descendants, in kilobytes, where it can be seen."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        below = [int(child) for child in file.read().split()]
    private = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            private = sum(int(line.split()[1]) for line in file if line.startswith("Private"))
    except OSError:
        private = 0  # not dumpable, and we are not root
    return [private, *(size for child in below for size in family(child))]


CROWDED = """
import asyncio, resource
from toolrest.process.command import Command
from toolrest.process.helper import tree
from toolrest.process.owner import Owner
from toolrest.process.run import run

async def main():
    owner = Owner(cgroup=False)
    command = Command(("true",), "/", {"PATH": "/usr/bin:/bin"})
    async def several():
        return [await run(owner, command, time_limit=60) for _ in range(8)]
    def allow(soft):
        for pid in (owner.pid, *tree.descendants(owner.pid)):
            resource.prlimit(pid, resource.RLIMIT_NPROC, (soft, hard))
    await several()
    before, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    allow(1)
    for result in (await several())[4:]:
        print(result.state, result.error)
    allow(before)
    print((await several())[-1].state)
    await owner.aclose()

asyncio.run(main())
"""


def test_no_room_for_another_process(ordinary: Callable[..., subprocess.Popen[str]]) -> None:
    out, err = ordinary(CROWDED).communicate(timeout=60)
    words = "cannot create a process for `true`: Resource temporarily unavailable (os error 11)"
    assert (out, err) == (f"failed_to_start {words}\n" * 4 + "exited\n", "")
