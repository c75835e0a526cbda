"""Bubblewrap is started before its view is known: it gets all arguments, or it runs nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import RunResult, run
from toolrest.sandbox.backends.launcher import LONGEST, ArgumentPipe
from toolrest.sandbox.confine import Confined, SessionSandbox
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.guard.guard import NameGuard
from toolrest.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.needs("namespaces")

ENV = {"PATH": "/usr/bin:/bin"}

KILLED = """
import asyncio, os, signal, sys
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy

moment, workspace, session, registry = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    policy = SandboxPolicy.build(workspace, session)
    sandbox = SessionSandbox(policy, backend="bubblewrap", registry=registry)
    sandbox.choose()
    line = "touch ran; sleep 60"
    command = Command(("/bin/sh", "-c", line), workspace, {"PATH": "/usr/bin:/bin"})
    confined = sandbox.confine(command, late=True)
    ready = confined.command.ready
    engine = sandbox.choose()[1]
    held = engine._guarded.hold

    def hold():
        found = held()
        if moment == "held":
            die()
        return found

    engine._guarded.hold = hold

    def early():
        if moment == "sent":
            die()
        ready()

    from msgspec.structs import replace
    owner = Owner()
    child = await owner.start(replace(confined.command, ready=early), merge=True)
    print(child.keeper, flush=True)
    die()

asyncio.run(main())
"""


@pytest.fixture
def base(ground: Path) -> Path:
    found = Path(tempfile.mkdtemp(dir=ground))
    (found / "ws").mkdir()
    return found


@pytest.fixture
def sandbox(base: Path) -> SessionSandbox:
    policy = SandboxPolicy.build(str(base / "ws"), str(base / "session"))
    return SessionSandbox(policy, backend="bubblewrap", registry=str(base / "registry"))


def late(sandbox: SessionSandbox, line: str, **more: str) -> Confined:
    command = Command(("/bin/sh", "-c", line), sandbox.policy.workspace, {**ENV, **more})
    return sandbox.confine(command, late=True)


async def said(owner: Owner, confined: Confined) -> str:
    try:
        result = await run(owner, confined.command)
    finally:
        confined.release()
    return result.stdout + result.stderr


async def test_nothing_is_held_before_the_launcher_is_on_its_way(
    sandbox: SessionSandbox, owner: Owner
) -> None:
    workspace = Path(sandbox.policy.workspace)
    confined = late(sandbox, "ls -A; touch .codex/x")
    assert list(workspace.iterdir()) == []
    text = await said(owner, confined)
    assert ".codex" in text
    assert "Read-only" in text
    assert list(workspace.iterdir()) == []


async def test_a_launcher_that_is_told_nothing_runs_nothing(
    sandbox: SessionSandbox, owner: Owner
) -> None:
    confined = late(sandbox, "touch ran")
    running = asyncio.ensure_future(run(owner, replace(confined.command, ready=None)))
    await asyncio.sleep(0)
    confined.release()
    result: RunResult = await running
    assert result.exit_code not in (0, None)
    assert list(Path(sandbox.policy.workspace).iterdir()) == []


@pytest.mark.parametrize("moment", ["sent", "held", "given"])
def test_a_host_that_is_killed_leaves_no_command_behind(base: Path, moment: str) -> None:
    workspace, registry = base / "ws", base / "registry"
    words = (moment, str(workspace), str(base / "session"), str(registry))
    host = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, timeout=60)
    assert host.returncode == -signal.SIGKILL, host.stderr
    if moment != "given":
        assert not (workspace / "ran").exists()
    # What was held when it died is for the next session to clean up, once its keeper has ended.
    policy = SandboxPolicy.build(str(workspace), str(base / "other"))
    following = SessionSandbox(policy, backend="bubblewrap", registry=str(registry))
    until = time.monotonic() + 60
    following.confine(Command(("true",), str(workspace), ENV)).release()
    while not {path.name for path in workspace.iterdir()} <= {"ran"}:
        assert time.monotonic() < until, list(workspace.iterdir())
        following.confine(Command(("true",), str(workspace), ENV)).release()


async def test_what_cannot_be_held_is_an_error_and_ends_the_launcher(
    sandbox: SessionSandbox, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    confined = late(sandbox, "touch ran")

    def fails(_: NameGuard) -> None:
        raise SandboxUnavailable("no room")

    monkeypatch.setattr(NameGuard, "hold", fails)
    with pytest.raises(SandboxUnavailable, match="no room"):
        await run(owner, confined.command)
    confined.release()
    assert not owner.children
    monkeypatch.undo()
    assert "fine" in await said(owner, late(sandbox, "echo fine; ls -A"))
    assert list(Path(sandbox.policy.workspace).iterdir()) == []


async def test_a_view_that_has_grown_too_long_is_not_sent_in_parts(
    sandbox: SessionSandbox, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    confined = late(sandbox, "touch ran")
    monkeypatch.setattr(ArgumentPipe, "send", lambda *_: False)
    with pytest.raises(SandboxBusy, match=r"[Cc]all again"):
        await run(owner, confined.command)
    confined.release()
    assert list(Path(sandbox.policy.workspace).iterdir()) == []


async def test_a_large_environment_goes_the_other_way(
    sandbox: SessionSandbox, owner: Owner
) -> None:
    confined = late(sandbox, 'echo "${#BIG}"; touch .codex/x', BIG="x" * 100_000)
    assert confined.command.ready is None
    text = await said(owner, confined)
    assert "100000" in text
    assert "Read-only" in text


@pytest.fixture
def small_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[ArgumentPipe], None]], None]:
    """From now on the kernel takes little at once; what else is done to each one is given."""
    real = ArgumentPipe.__init__

    def shrink(more: Callable[[ArgumentPipe], None]) -> None:
        def small(self: ArgumentPipe) -> None:
            real(self)
            self._here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            more(self)

        monkeypatch.setattr(ArgumentPipe, "__init__", small)

    return shrink


async def test_a_kernel_with_small_buffers_too(
    sandbox: SessionSandbox,
    owner: Owner,
    small_buffers: Callable[[Callable[[ArgumentPipe], None]], None],
) -> None:
    sandbox.choose()

    def known(late: ArgumentPipe) -> None:
        late.room = late._here.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2 - 1024

    small_buffers(known)
    confined = late(sandbox, "touch .codex/x")
    assert confined.command.ready is None
    assert "Read-only" in await said(owner, confined)


async def test_every_command_of_a_session_has_the_whole_filter(
    sandbox: SessionSandbox, owner: Owner
) -> None:
    """The file that it is read from is used again and again."""
    for _ in range(4):
        text = await said(owner, late(sandbox, "grep Seccomp: /proc/self/status; unshare -U true"))
        assert "Seccomp:\t2" in text
        assert "not permitted" in text


async def test_commands_at_once_have_the_filter_too(sandbox: SessionSandbox, owner: Owner) -> None:
    texts = await asyncio.gather(
        *(said(owner, late(sandbox, f"echo {n}; unshare -U true")) for n in range(6))
    )
    for number, text in enumerate(texts):
        assert text.startswith(f"{number}\n")
        assert "not permitted" in text


def test_the_message_ends_although_a_fork_holds_a_copy() -> None:
    pair = ArgumentPipe()
    copy = os.dup(pair._here.fileno())
    try:
        reader = os.dup(pair.fd)
        assert pair.send(b"--a\0b\0")
        pair.close()
        pair.close()
        with os.fdopen(reader, "rb") as file:
            assert file.read() == b"--a\0b\0"
    finally:
        os.close(copy)


def test_what_is_too_long_is_not_given() -> None:
    pair = ArgumentPipe()
    assert not pair.send(b"x" * (LONGEST + 1))
    with os.fdopen(os.dup(pair.fd), "rb") as file:
        pair.close()
        assert file.read() == b""


async def test_what_ended_commands_had_in_memory_is_free_while_the_next_one_runs(
    sandbox: SessionSandbox, owner: Owner
) -> None:
    """Their mounts are kept for a moment, since taking them down takes a while; no longer."""
    before = in_memory()
    for _ in range(4):
        await said(owner, late(sandbox, "head -c 64M /dev/zero > /dev/shm/x"))
    confined = late(sandbox, "read line")
    pipe = os.pipe()
    command = replace(confined.command, fds=(*confined.command.fds, (0, pipe[0])))
    running = asyncio.ensure_future(run(owner, command))
    try:
        async with asyncio.timeout(60):
            while in_memory() - before > 96 << 10:
                await asyncio.sleep(0.01)
        assert not running.done()
    finally:
        for end in pipe:
            os.close(end)
        await running
        confined.release()


def in_memory() -> int:
    """How many kilobytes all file systems in memory hold."""
    (line,) = (line for line in Path("/proc/meminfo").read_text().splitlines() if "Shmem:" in line)
    return int(line.split()[1])


async def test_a_message_that_is_cut_short_ends_the_launcher(
    sandbox: SessionSandbox,
    owner: Owner,
    small_buffers: Callable[[Callable[[ArgumentPipe], None]], None],
) -> None:
    sandbox.choose()
    small_buffers(lambda late: late._here.setblocking(False))
    confined = late(sandbox, "touch ran", BIG="x" * 3000)
    assert confined.command.ready is not None
    with pytest.raises(SandboxBusy, match="changed while the command was starting"):
        await run(owner, confined.command)
    confined.release()
    assert list(Path(sandbox.policy.workspace).iterdir()) == []


async def test_what_the_user_removes_before_the_mounts_stays_away(
    base: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bubblewrap makes what it is to mount on: a hidden name came back empty."""
    workspace = base / "ws"
    secret, folder = workspace / "sub/.env", workspace / "sub/keys"
    folder.mkdir(parents=True)
    secret.write_text("SECRET\n")
    policy = SandboxPolicy.build(
        str(workspace), str(base / "session"), hidden=[str(secret), str(folder)]
    )
    sandbox = SessionSandbox(policy, backend="bubblewrap", registry=str(base / "registry"))
    await said(owner, late(sandbox, "true"))
    assert folder.is_dir()  # an empty one that the user made just now
    send = ArgumentPipe.send

    def after_removal(pipe: ArgumentPipe, arguments: bytes) -> bool:
        secret.unlink()
        folder.rmdir()
        return send(pipe, arguments)

    monkeypatch.setattr(ArgumentPipe, "send", after_removal)
    assert "end" in await said(owner, late(sandbox, "echo end"))
    assert list(workspace.glob("sub/*")) == []
    monkeypatch.undo()
    secret.write_text("NEW\n")
    folder.mkdir()
    (folder / "one").touch()
    assert "NEW" not in await said(owner, late(sandbox, "cat sub/.env; rm -rf sub/keys"))
    assert secret.read_text() == "NEW\n"
    assert [file.name for file in folder.iterdir()] == ["one"]
