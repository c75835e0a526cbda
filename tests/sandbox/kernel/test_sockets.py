"""Sockets of the host do not answer, whenever and wherever they were opened (S18)."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.backends.probe import probe_bubblewrap
from toolrest.sandbox.confine import Sandbox
from toolrest.sandbox.kernel.mounts import Mounts, socket_paths
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import bundled_bwrap

Listen = Callable[[str], list[bytes]]

CONNECT = """
import socket, sys, time, os
while len(sys.argv) > 2 and not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
try:
    s.connect(sys.argv[1]); s.send(b"x"); print("connected")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def outside(ground: Path) -> Path:
    """A folder that the sandbox shows, outside the workspace."""
    return Path(tempfile.mkdtemp(dir=ground))


@pytest.fixture
def policy(ground: Path) -> SandboxPolicy:
    base = Path(tempfile.mkdtemp(dir=ground))
    (base / "ws").mkdir()
    return SandboxPolicy.build(str(base / "ws"), str(base / "session"))


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    """Ends what a failed test leaves running."""
    owner = Owner()
    yield owner
    await owner.aclose()


async def start(sandbox: Sandbox, owner: Owner, *argv: str) -> asyncio.Task[str]:
    """Begin a Python command inside; the task ends with its output."""
    env = {"PATH": "/usr/bin:/bin"}
    command = Command((sys.executable, "-I", "-c", *argv), sandbox.policy.workspace, env)
    confined = sandbox.confine(command, late=True)
    child = await owner.start(confined.command, merge=True)

    async def finish() -> str:
        with os.fdopen(child.outputs[0], "rb") as stream:
            text = await asyncio.to_thread(stream.read)
        await child.wait()
        await child.kill()
        confined.release()
        return text.decode().strip()

    return asyncio.create_task(finish())


@pytest.mark.needs("sandbox")
async def test_sockets_that_are_there_before(
    owner: Owner, policy: SandboxPolicy, outside: Path, listen: Listen
) -> None:
    sandbox = Sandbox(policy)
    places = [outside / "before.sock", Path(policy.workspace) / "in-workspace.sock"]
    for place in places:
        seen = listen(str(place))
        assert await (await start(sandbox, owner, CONNECT, str(place))) != "connected"
        assert seen == []


@pytest.mark.needs("sandbox")
async def test_sockets_that_come_while_a_command_runs(
    owner: Owner, policy: SandboxPolicy, outside: Path, listen: Listen
) -> None:
    sandbox = Sandbox(policy)
    late, go = outside / "late.sock", Path(policy.workspace) / "go"
    task = await start(sandbox, owner, CONNECT, str(late), str(go))
    seen = listen(str(late))
    go.touch()
    assert await task != "connected"
    assert seen == []


@pytest.mark.needs("sandbox")
async def test_sockets_bound_by_a_relative_name(
    owner: Owner,
    policy: SandboxPolicy,
    outside: Path,
    listen: Listen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel lists these by the name that was given, which says nothing about where."""
    monkeypatch.chdir(outside)
    seen = listen("relative.sock")
    sandbox = Sandbox(policy)
    answer = await (await start(sandbox, owner, CONNECT, str(outside / "relative.sock")))
    assert answer != "connected"
    assert seen == []


@pytest.mark.needs("namespaces")
async def test_without_overlays_what_the_kernel_lists_is_masked(
    owner: Owner, policy: SandboxPolicy, outside: Path, listen: Listen, tmp_path: Path
) -> None:
    bwrap = bundled_bwrap()
    assert bwrap is not None
    probe, engine = probe_bubblewrap(policy, bwrap, str(tmp_path), overlays=False)
    assert engine is not None
    assert probe.controls["unix_sockets"].level == "partial"
    sandbox = Sandbox(policy)
    sandbox._chosen = probe, engine
    seen = listen(str(outside / "listed.sock"))
    assert await (await start(sandbox, owner, CONNECT, str(outside / "listed.sock"))) != "connected"
    assert seen == []


@pytest.mark.needs("namespaces")
async def test_own_sockets_work_between_commands(owner: Owner, policy: SandboxPolicy) -> None:
    serve = """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1] + ".new"); s.listen()
import os; os.rename(sys.argv[1] + ".new", sys.argv[1])
c, _ = s.accept(); print(c.recv(1).decode())
"""
    sandbox = Sandbox(policy)
    path = policy.workspace + "/own.sock"
    server = await start(sandbox, owner, serve, path)
    client = await start(sandbox, owner, CONNECT, path, path)
    assert await client == "connected"
    assert await server == "x"


def test_the_table_of_sockets_is_read_as_the_kernel_writes_it(tmp_path: Path) -> None:
    table = tmp_path / "unix"
    table.write_bytes(
        b"Num       RefCount Protocol Flags    Type St Inode Path\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b.sock\n"
        b"ffff888003c5d800: 00000003 00000000 00000000 0001 03  1143\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12346 @abstract\n"
        b"0000000000000000: 00000002 00000000 00010000 0001 01 12347 relative\n"
        b"0000000000000000: 00000002 00000000 00010000 0002 01     9 /x\nwith newline\n"
        b"0000000000000000: 00000002 00000000 00010000 0005 01 12349 /\xff\n"
    )
    assert socket_paths(str(table)) == ("/run/a b.sock", "/x\nwith newline", "/\udcff")
    assert socket_paths(str(tmp_path / "none")) == ()


def test_the_kernels_own_table_has_a_socket_of_ours(tmp_path: Path, listen: Listen) -> None:
    listen(str(tmp_path / "s.sock"))
    assert str(tmp_path / "s.sock") in socket_paths()


def test_folders_with_mounts_inside_are_left_out(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    tops = [f"/{name}" for name in os.listdir("/")]
    table.write_text("20 1 8:1 / / rw - ext4 /dev/sda rw\n")
    mounts = Mounts(str(table))
    assert mounts.refresh()
    assert not mounts.refresh()
    whole, left_out = mounts.overlays(())
    assert whole
    assert left_out == []
    assert set(whole) <= set(tops)
    assert not {"/usr", "/proc", "/tmp", "/run", "/dev"} & set(whole)
    chosen = whole[0]
    table.write_text(
        f"20 1 8:1 / / rw - ext4 /dev/sda rw\n21 20 8:2 / {chosen}/mounted rw - ext4 /dev/sdb rw\n"
    )
    assert mounts.refresh()
    assert chosen not in mounts.overlays(()).chosen
    assert mounts.overlays(("/",)) == ([], [])
    table.write_text("20 1 8:1 / / rw - fuse.sshfs x rw\n")
    mounts.refresh()
    assert mounts.overlays(()).chosen == []
    assert set(mounts.overlays(()).left_out) == set(whole)
