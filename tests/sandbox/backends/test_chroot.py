"""A root file system of the user's own, entered in a private mount namespace."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from toolrest.errors import ConfigError
from toolrest.process.command import Command
from toolrest.sandbox.backends.chroot import base_arguments, check_rootfs
from toolrest.sandbox.backends.probe import run_probe
from toolrest.sandbox.confine import Sandbox
from toolrest.sandbox.policy import SandboxPolicy


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
def sandbox(ground: Path, tmp_path: Path, rootfs: Path) -> Sandbox:
    workspace = Path(tempfile.mkdtemp(dir=ground))
    policy = SandboxPolicy.build(str(workspace), str(tmp_path / "session"))
    return Sandbox(policy, backend="chroot", rootfs=str(rootfs))


@pytest.mark.needs("namespaces")
def test_links_in_the_workspace_stay(sandbox: Sandbox) -> None:
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
def test_a_command_sees_that_root_and_the_workspace(sandbox: Sandbox) -> None:
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
def test_the_folder_is_not_touched(sandbox: Sandbox, rootfs: Path) -> None:
    before = sorted(rootfs.rglob("*"))
    sandbox.choose()
    assert sorted(rootfs.rglob("*")) == before


def test_bad_folders_are_named(sandbox: Sandbox, tmp_path: Path) -> None:
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
