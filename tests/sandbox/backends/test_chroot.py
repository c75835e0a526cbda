"""A root file system of the user's own, entered in a private mount namespace."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest.errors import ConfigError
from toolrest.process.command import Command
from toolrest.sandbox.backends import bubblewrap
from toolrest.sandbox.backends.chroot import base_arguments, check_rootfs
from toolrest.sandbox.backends.probe import run_probe
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.kernel.mounts import socket_paths
from toolrest.sandbox.policy import Mode, SandboxPolicy


@pytest.fixture
def rootfs(ground: Path, tmp_path: Path) -> Path:
    """This machine's programs and libraries by another way, and a settings folder of its own."""
    root = tmp_path / "rootfs"
    for name in ("etc", "home/x", "var"):
        (root / name).mkdir(parents=True)
    (root / "etc/mark").write_text("chroot")
    for program in ("sh", "cat", "touch", "true", "ls"):
        real = shutil.which(program)
        assert real is not None
        linked = subprocess.run(["ldd", real], capture_output=True, text=True).stdout
        files = [word for word in linked.split() if word.startswith("/")]
        for file in (real, *files):
            target = root / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(file, target)
        (root / "bin").mkdir(exist_ok=True)
        if not (root / "bin" / program).exists():
            shutil.copy(real, root / "bin" / program)
    return root


@pytest.fixture
def sandbox(ground: Path, tmp_path: Path, rootfs: Path) -> SessionSandbox:
    workspace = Path(tempfile.mkdtemp(dir=ground))
    policy = SandboxPolicy.build(str(workspace), str(tmp_path / "session"))
    return SessionSandbox(policy, backend="chroot", rootfs=str(rootfs))


@pytest.mark.needs("namespaces")
def test_links_in_the_workspace_stay(sandbox: SessionSandbox) -> None:
    workspace = Path(sandbox.policy.workspace)
    (workspace / "conf").mkdir()
    (workspace / ".vscode").symlink_to("conf")
    for line, problem in [
        ("touch conf/x", "Read-only"),
        ("touch -h .vscode", "Read-only"),
        ("ls .vscode/; touch new", ""),
    ]:
        command = Command(("/bin/sh", "-c", line), str(workspace), {"PATH": "/bin"})
        confined = sandbox.confine(command)
        try:
            assert problem in run_probe(confined.command) or not problem
        finally:
            confined.release()
    assert {path.name for path in workspace.iterdir()} == {".vscode", "conf", "new"}


@pytest.mark.needs("namespaces")
def test_a_command_sees_that_root_and_the_workspace(sandbox: SessionSandbox) -> None:
    workspace = sandbox.policy.workspace

    def said(line: str) -> str:
        command = Command(("/bin/sh", "-c", line), workspace, {"PATH": "/bin"})
        confined = sandbox.confine(command)
        assert confined.backend == "chroot"
        try:
            return run_probe(confined.command)
        finally:
            confined.release()

    assert said('test "$(cat /etc/mark)" = chroot && touch made && touch /tmp/x') == ""
    assert (Path(workspace) / "made").exists()
    assert "No such file" in said("cat /etc/passwd")
    assert "Read-only" in said("touch /etc/x")
    assert "Read-only" in said("touch /x")
    assert "Read-only" in said("touch .codex")
    assert said("test -e /etc/passwd -o -e /usr/share -o -e /sys/kernel") != ""


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
def test_hidden_files_by_mode(ground: Path, tmp_path: Path, rootfs: Path, mode: Mode) -> None:
    workspace = Path(tempfile.mkdtemp(dir=ground))
    (workspace / ".env").write_text("SECRET")
    (workspace / "file").write_text("text")
    policy = SandboxPolicy.build(
        str(workspace), str(tmp_path / "session"), mode=mode, hidden=[str(workspace / ".env")]
    )
    sandbox = SessionSandbox(policy, backend="chroot", rootfs=str(rootfs))
    line = 'test "$(cat file)" = text && test -z "$(cat .env)"'
    confined = sandbox.confine(Command(("/bin/sh", "-c", line), str(workspace), {"PATH": "/bin"}))
    try:
        assert run_probe(confined.command) == ""
    finally:
        confined.release()


@pytest.mark.needs("namespaces")
def test_sockets_of_the_host_do_not_answer(
    sandbox: SessionSandbox,
    rootfs: Path,
    listen: Callable[[str], list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the workspace, and in the folder, also by a service that was started in it."""
    rootfs, workspace = rootfs.resolve(), sandbox.policy.workspace
    listen(f"{workspace}/s.sock")
    listen(f"{rootfs}/var/s.sock")
    monkeypatch.setattr(bubblewrap, "socket_paths", lambda: (*socket_paths(), "/home/x/s.sock"))
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(rootfs / "home/x")
        server.bind("s.sock")  # listed as it was named
        server.listen()
        for path in ("s.sock", "/var/s.sock", "/home/x/s.sock"):
            line = f"if test -S {path} || ! test -f {path}; then echo {path} >&2; exit 1; fi"
            command = Command(("/bin/sh", "-c", line), workspace, {"PATH": "/bin"})
            confined = sandbox.confine(command)
            try:
                assert run_probe(confined.command) == ""
            finally:
                confined.release()
    assert confined.controls["unix_sockets"].level == "partial"


@pytest.mark.needs("namespaces")
def test_the_folder_is_not_touched(sandbox: SessionSandbox, rootfs: Path) -> None:
    before = sorted(rootfs.rglob("*"))
    sandbox.choose()
    assert sorted(rootfs.rglob("*")) == before


def test_bad_folders_are_named(sandbox: SessionSandbox, tmp_path: Path) -> None:
    for bad in ("/", str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(ConfigError, match=r"sandbox\.chroot"):
            check_rootfs(bad, sandbox.policy)
    inner = Path(sandbox.policy.workspace) / "rootfs/bin"
    inner.mkdir(parents=True)
    (inner / "sh").touch()
    with pytest.raises(ConfigError, match="writable root"):
        check_rootfs(str(inner.parent), sandbox.policy)


def test_filling_leaves_room_for_mount_points(tmp_path: Path) -> None:
    for name in ("usr/bin", "home/x/y", "proc/1", "var"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    words = " ".join(base_arguments(str(tmp_path), ["/home/x/ws", "/var"]))
    base: Any = tmp_path
    assert words == (
        "--tmpfs / --symlink usr/bin /bin --dir /home --dir /home/x"
        f" --ro-bind {base}/home/x/y /home/x/y --ro-bind {base}/usr /usr --ro-bind {base}/var /var"
    )
