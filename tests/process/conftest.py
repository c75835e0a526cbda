"""Real processes, looked at through /proc."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.machine import NOBODY, interpreter, packages

from toolrest.process.command import Command
from toolrest.process.owner import Owner

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def living(mark: str) -> list[int]:
    """Pids of processes that run and have this text among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            arguments = Path(f"/proc/{name}/cmdline").read_bytes()
            state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in arguments and state not in (b"Z", b"X"):
            found.append(int(name))
    return found


class Marked:
    """A number of seconds to sleep that no other process has: it finds sleepers in /proc."""

    def __init__(self) -> None:
        self.text = f"900.{secrets.randbelow(10**9):09d}"

    def __str__(self) -> str:
        return self.text

    def pids(self) -> list[int]:
        """The processes that carry the mark now."""
        return living(self.text)

    def count(self) -> int:
        """How many they are."""
        return len(self.pids())

    def expect(self, number: int) -> None:
        """Wait until exactly this many do."""
        until = time.monotonic() + 60
        while self.count() != number:
            assert time.monotonic() < until, f"{self.count()} processes, expected {number}"
            time.sleep(0.01)


@pytest.fixture
def mark() -> Iterator[Marked]:
    """A mark whose last bearers are killed after the test, whatever happened."""
    marked = Marked()
    yield marked
    for pid in living(marked.text):
        os.kill(pid, 9)


@pytest.fixture
def sh() -> Callable[..., Command]:
    """A command that runs a line of bash, in the root folder."""

    def make(
        line: str, cwd: str = "/", env: dict[str, str] | None = None, tty: bool = False
    ) -> Command:
        return Command(("bash", "-c", line), cwd, ENV | (env or {}), tty=tty)

    return make


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    """An owner that is closed after the test and must not leave a descriptor behind."""
    before = set(os.listdir("/proc/self/fd"))
    owner = Owner()
    yield owner
    assert await owner.aclose() == ()
    assert not owner.children
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def users() -> list[str]:
    """As root there are two of them; an ordinary user has only itself."""
    return ["root", "nobody"] if os.geteuid() == 0 else ["self"]


def starter(nobody: bool) -> Callable[..., subprocess.Popen[str]]:
    """How to start a Python program, as this user or as an ordinary one."""
    python = interpreter(ordinary=nobody)

    def start(text: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [python, "-W", "error", "-c", text, *arguments],
            user=NOBODY if nobody else None,
            group=NOBODY if nobody else None,
            extra_groups=[] if nobody else None,
            cwd="/",
            env=ENV | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": packages()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(params=users())
def script(request: pytest.FixtureRequest) -> Callable[..., subprocess.Popen[str]]:
    """Start a Python program of its own, as this user and, for root, as an ordinary one too."""
    return starter(request.param == "nobody")


@pytest.fixture
def ordinary() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python program as an ordinary user."""
    return starter(os.geteuid() == 0)
