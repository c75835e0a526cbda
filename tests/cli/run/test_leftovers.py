"""Leftovers of a session that is killed with all its processes: the next one clears them up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolrest import Toolrest
from toolrest.cli.app import app
from toolrest.control.sockets import listen

KILLED = """
import asyncio, os, signal, sys
from toolrest import Toolrest
from toolrest.config.files import placeholder_records
from toolrest.patch.files.os_files import OsFiles
from toolrest.sandbox.guard.placeholders import MountPoints

home, workspace = sys.argv[1:]
rename, renamed = OsFiles.rename, []

def counted(self, old, new):
    renamed.append(new)
    if len(renamed) == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(self, old, new)

OsFiles.rename = counted
points = MountPoints(placeholder_records(home), workspace)
points.acquire([f"{workspace}/.vscode"], {f"{workspace}/.mcp.json": b""})
patch = "".join(f"*** Update File: {n:02}.txt\\n@@\\n-{n}\\n+new\\n" for n in range(20))

async def main():
    rest = Toolrest(workspace, sandbox_mode="workspace-write", approval_policy="never",
                    settings={"checkpoints.enabled": False})
    async with rest:
        await rest.call("apply_patch", {"input": f"*** Begin Patch\\n{patch}*** End Patch"})

asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("TOOLREST_HOME", str(path))
    return path


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    for n in range(20):
        (path / f"{n:02}.txt").write_text(f"{n}\n")
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def left(home: Path, work: Path) -> Path:
    """The workspace after the ninth rename of a patch of 20 files: its session is killed."""
    ended = subprocess.run([sys.executable, "-c", KILLED, str(home), str(work)], check=False)
    assert ended.returncode == -9
    assert {".vscode", ".mcp.json"} < set(os.listdir(work))
    assert len(list(work.glob(".toolrest-*.tmp"))) == 21
    assert sum(path.read_text() == "new\n" for path in work.glob("*.txt")) == 8
    (home / "control").mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / "control/dead.sock"))
    os.utime(home / "control/dead.sock", (0, 0))
    return work


def opened(work: Path) -> str:
    return "\n".join(Toolrest(work).warnings)


def command(*words: str) -> Callable[[Path], str]:
    return lambda _: CliRunner().invoke(app, words).output


@pytest.mark.slow
@pytest.mark.parametrize(
    "opener",
    [opened, command("gc"), pytest.param(command("doctor"), marks=pytest.mark.needs("sandbox"))],
    ids=["a session", "gc", "doctor"],
)
def test_after_a_kill_of_everything_the_next_of_ours_clears_up(
    left: Path, home: Path, opener: Callable[[Path], str]
) -> None:
    said = opener(left)
    assert f"{left}: took back 8 files of a patch that a crash had cut off" in said
    assert {path.name: path.read_text() for path in left.iterdir()} == {
        f"{n:02}.txt": f"{n}\n" for n in range(20)
    }
    assert "took back" not in opener(left)
    if opener is not opened:
        assert not (home / "control/dead.sock").exists()


@pytest.mark.slow
def test_gc_that_only_looks_changes_nothing(left: Path) -> None:
    command("gc", "--dry-run")(left)
    assert len(list(left.glob(".toolrest-*.tmp"))) == 21


def test_a_session_that_listens_removes_the_sockets_of_dead_ones(tmp_path: Path) -> None:
    with listen(str(tmp_path), "alive"):
        for name, at in (("old", 0), ("fresh", None)):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(tmp_path / f"control/{name}.sock"))
            if at is not None:
                os.utime(tmp_path / f"control/{name}.sock", (at, at))
        with listen(str(tmp_path), "new"):
            found = sorted(path.name for path in (tmp_path / "control").iterdir())
    assert found == ["alive.sock", "fresh.sock", "new.sock"]
