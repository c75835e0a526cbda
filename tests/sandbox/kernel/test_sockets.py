"""Sockets of the host do not answer, whenever and wherever they were opened (S18)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.machine import solid_ground

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.backends.probe import probe_bubblewrap
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.kernel import mounts as kernel_mounts
from toolrest.sandbox.kernel.mounts import Mounts, Overlays, socket_paths
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


async def start(sandbox: SessionSandbox, owner: Owner, *argv: str) -> asyncio.Task[str]:
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
    sandbox = SessionSandbox(policy)
    places = [outside / "before.sock", Path(policy.workspace) / "in-workspace.sock"]
    for place in places:
        seen = listen(str(place))
        assert await (await start(sandbox, owner, CONNECT, str(place))) != "connected"
        assert seen == []


@pytest.mark.needs("sandbox")
async def test_sockets_that_come_while_a_command_runs(
    owner: Owner, policy: SandboxPolicy, outside: Path, listen: Listen
) -> None:
    sandbox = SessionSandbox(policy)
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
    sandbox = SessionSandbox(policy)
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
    sandbox = SessionSandbox(policy)
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
    sandbox = SessionSandbox(policy)
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
    whole, left_out, _ = mounts.overlays(())
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
    assert mounts.overlays(("/",)) == ([], [], [])
    table.write_text("20 1 8:1 / / rw - fuse.sshfs x rw\n")
    mounts.refresh()
    assert mounts.overlays(()).chosen == []
    assert set(mounts.overlays(()).left_out) == set(whole)


LEVEL = """
import sys
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy
policy = SandboxPolicy.build(sys.argv[1], sys.argv[2])
print(SessionSandbox(policy).choose()[0].controls["unix_sockets"])
"""


@pytest.mark.needs("namespaces", "mounts")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's mounts are seen by a sandbox here")
def test_a_mount_beside_a_hundred_folders_leaves_no_socket_within_reach(tmp_path: Path) -> None:
    """A container engine's mount below /var/lib, on a machine with many services, made a gap."""
    (tmp_path / "ws").mkdir()
    base = Path(tempfile.mkdtemp(dir=solid_ground()))
    base.chmod(0o755)
    for name in ("mounted", *(f"service{number}" for number in range(100))):
        (base / name).mkdir()
    lines = f'mount --bind {base}/mounted {base}/mounted && exec "$@"'
    own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", lines, "sh"]
    python = [sys.executable, "-c", LEVEL, str(tmp_path / "ws"), str(tmp_path / "session")]
    bare = subprocess.run([*own[:4], *python], capture_output=True, text=True, timeout=60)
    done = subprocess.run([*own, *python], capture_output=True, text=True, timeout=60)
    assert done.stdout == bare.stdout, done.stderr
    assert "Enforced" in bare.stdout, bare.stderr


COMES_AND_GOES = """
import os, sys
from toolrest.process.command import Command
from toolrest.sandbox.backends.probe import run_probe
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy
workspace, session, base, busy = sys.argv[1:]
sandbox = SessionSandbox(SandboxPolicy.build(workspace, session))
if busy:  # a command that does not end
    sandbox.confine(Command(("/bin/true",), workspace, {"PATH": "/usr/bin:/bin"}))
for change in (lambda: None, lambda: os.rmdir(base + "/goes"), lambda: os.mkdir(base + "/comes")):
    change()
    confined = sandbox.confine(Command(("/bin/true",), workspace, {"PATH": "/usr/bin:/bin"}))
    words = b"".join(data for _, data in confined.command.files).split(b"\\0")
    print(run_probe(confined.command) or "ran", base.encode() + b"/comes" in words)
    confined.release()
"""


@pytest.mark.needs("namespaces", "mounts")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's mounts are seen by a sandbox here")
@pytest.mark.parametrize("busy", ["", "busy"])
def test_folders_that_come_and_go_beside_a_mount_stop_no_command(tmp_path: Path, busy: str) -> None:
    (tmp_path / "ws").mkdir()
    base = Path(tempfile.mkdtemp(dir=solid_ground()))
    base.chmod(0o755)
    for name in ("mounted", "goes"):
        (base / name).mkdir()
    lines = f'mount --bind {base}/mounted {base}/mounted && exec "$@"'
    own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", lines, "sh"]
    python = [sys.executable, "-c", COMES_AND_GOES]
    places = [str(tmp_path / "ws"), str(tmp_path / "session"), str(base)]
    words = [*own, *python, *places, busy]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["ran False", "ran False", "ran True"], done.stderr


def test_a_store_of_containers_is_hidden_and_the_rest_overlaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container engine's mount makes many parts of the folder around it."""
    store = tmp_path / "store"
    for name in (*(f"other{number}" for number in range(30)), "store/layers/one"):
        (tmp_path / name).mkdir(parents=True)
    table = tmp_path / "mountinfo"
    table.write_text(
        "20 1 8:1 / / rw - ext4 /dev/sda rw\n"
        f"21 20 8:2 / {store}/layers/one rw - overlay overlay rw\n"
    )
    monkeypatch.setattr(kernel_mounts, "STORES", (str(store),))
    mounts = Mounts(str(table))
    mounts.refresh()
    found = Overlays([], [], [])
    mounts._parts(str(tmp_path), (), 5, found)
    # The folder itself can be written by an ordinary user, and cannot be overlaid as a whole.
    left_out = [] if os.geteuid() == 0 else [str(tmp_path)]
    others = [f"{tmp_path}/other{n}" for n in sorted(range(30), key=str)]
    assert found == (others, left_out, [str(store)])
    inner = Overlays([], [], [])
    mounts._parts(str(tmp_path), (f"{store}/layers/two",), 5, inner)
    assert inner.stores == []  # a workspace in it is shown
