"""A terminal inside the sandbox: Ctrl-C reaches the command and no other process (D-29)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from toolrest.process.child import Child
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox import programs
from toolrest.sandbox.confine import Backend, Confined, SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy


@pytest.fixture
def sandbox(tmp_path: Path, backend: Backend) -> SessionSandbox:
    (tmp_path / "ws").mkdir()
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "session"))
    return SessionSandbox(policy, backend=backend)


class Terminal:
    """A program on a terminal, typed at and read from."""

    def __init__(self, child: Child, confined: Confined) -> None:
        self.child = child
        self.confined = confined
        self.fd = child.outputs[0]
        os.set_blocking(self.fd, False)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    async def until(self, mark: str) -> str:
        loop, seen = asyncio.get_running_loop(), b""
        async with asyncio.timeout(60):
            while mark.encode() not in seen:
                ready = asyncio.Event()
                loop.add_reader(self.fd, ready.set)
                await ready.wait()
                loop.remove_reader(self.fd)
                try:
                    seen += os.read(self.fd, 65536)
                except OSError:
                    break
        return seen.decode(errors="replace")


Start = Callable[..., "asyncio.Future[Terminal]"]


@pytest.fixture
async def start(sandbox: SessionSandbox) -> AsyncIterator[Start]:
    owner = Owner()
    opened: list[Terminal] = []

    async def run(*argv: str) -> Terminal:
        env = {"PATH": "/usr/bin:/bin", "TERM": "dumb"}
        command = Command(argv, sandbox.policy.workspace, env, tty=True)
        confined = sandbox.confine(command, late=True)
        opened.append(Terminal(await owner.start(confined.command), confined))
        return opened[-1]

    yield run  # type: ignore[misc]
    await owner.aclose()
    for terminal in opened:
        os.close(terminal.fd)
        terminal.confined.release()


async def test_ctrl_c_interrupts_python_and_the_next_line_works(start: Start) -> None:
    terminal = await start(sys.executable, "-i")
    await terminal.until(">>> ")
    # Many short sleeps: Python itself can miss an interrupt in the moment before a long one.
    naps = "[time.sleep(0.05) for _ in range(10_000)]"
    terminal.type(f"import time; print('now', flush=True); {naps}\n")
    await terminal.until("now\r\n")
    terminal.type("\x03")
    assert "KeyboardInterrupt" in await terminal.until("KeyboardInterrupt\r\n>>> ")
    terminal.type("print(6 * 7)\n")
    assert "42" in await terminal.until("42\r\n>>> ")
    terminal.type("\x04")
    ended = await terminal.child.wait(60)
    assert ended is not None
    assert ended.exit_code == 0


async def test_ctrl_c_ends_an_ordinary_command(start: Start) -> None:
    # dash loses an interrupt that comes right before it forks, sandbox or not; bash does not.
    terminal = await start("bash", "-c", "echo on; sleep 900; echo never")
    await terminal.until("on")
    terminal.type("\x03")
    ended = await terminal.child.wait(60)
    assert ended is not None
    assert ended.exit_code in (130, None)


async def test_it_is_a_terminal_and_its_own(start: Start) -> None:
    terminal = await start("sh", "-c", "test -t 0 && test -t 1 && stty size && echo x > /dev/tty")
    assert "24 80" in await terminal.until("x\r\n")


async def test_a_name_with_an_equals_sign_is_run_and_not_set(
    start: Start, sandbox: SessionSandbox
) -> None:
    script = Path(sandbox.policy.workspace) / "a=b"
    script.write_text("#!/bin/sh\necho ran $1\n")
    script.chmod(0o755)
    terminal = await start(str(script), "well")
    assert "ran well" in await terminal.until("ran well")


def test_without_coreutils_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "system_program", lambda name: None)
    programs.signal_launchers.cache_clear()
    try:
        deaf, hears = programs.signal_launchers()
    finally:
        programs.signal_launchers.cache_clear()
    line = "grep SigIgn /proc/self/status"

    def ignored(*argv: str) -> int:
        return int(subprocess.check_output([*argv, "sh", "-c", line]).split()[1], 16)

    assert ignored(*deaf) & 0b110 == 0b110
    assert ignored(*deaf, *hears) & 0b110 == 0
