"""Names that must stay missing are held while commands run, and let go afterwards."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolrest.sandbox import mountpoints
from toolrest.sandbox.missing import placeholders
from toolrest.sandbox.mountpoints import MountPoints


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def registry(tmp_path: Path) -> str:
    return str(tmp_path / "registry")


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_made_and_removed(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    assert not points.in_use
    made = points.acquire([f"{root}/.codex"], {f"{root}/.rc": b"text\n"})
    assert made == (f"{root}/.codex", f"{root}/.rc")
    assert names(root) == {".codex", ".rc"}
    assert points.in_use
    points.release()
    assert names(root) == set()
    points.release()


def test_commands_side_by_side_share_them(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    points.acquire([f"{root}/a"], {})
    points.release()
    assert names(root) == {"a"}
    points.release()
    assert names(root) == set()


def test_sessions_side_by_side_share_them(root: Path, registry: str) -> None:
    one, other = MountPoints(registry, str(root)), MountPoints(registry, str(root))
    one.acquire([f"{root}/a"], {})
    other.acquire([f"{root}/a", f"{root}/b"], {})
    one.release()
    assert names(root) == {"a", "b"}
    other.release()
    assert names(root) == set()


def test_what_was_there_before_stays(root: Path, registry: str) -> None:
    (root / "a").mkdir()
    (root / "b").write_text("mine")
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a", f"{root}/b"], {f"{root}/b": b"x"})
    points.release()
    assert (root / "b").read_text() == "mine"
    assert names(root) == {"a", "b"}


def test_what_somebody_put_to_use_stays(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a", f"{root}/b"], {f"{root}/f": b""})
    (root / "a/file").touch()
    (root / "b").rmdir()
    (root / "b").mkdir()
    (root / "f").write_text("settings")
    points.release()
    assert {"a", "a/file", "f"} <= names(root)


CRASH = """
import os, sys
from toolrest.sandbox.mountpoints import MountPoints
registry, root = sys.argv[1:]
MountPoints(registry, root).acquire([f"{root}/a"], {f"{root}/f": b".\\n"})
os._exit(1)
"""


def test_the_next_session_cleans_up_after_a_crash(root: Path, registry: str) -> None:
    subprocess.run([sys.executable, "-c", CRASH, registry, str(root)])
    assert names(root) == {"a", "f"}
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/c"], {})
    assert names(root) == {"c"}
    points.release()
    assert names(root) == set()


def test_a_broken_record_is_survived(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    points.release()
    (record,) = Path(registry).glob("*.json")
    record.write_text('[["x"], 3, {}]')
    points.acquire([f"{root}/a"], {})
    points.release()
    assert names(root) == set()


def test_links_on_the_way_are_not_followed(root: Path, registry: str, tmp_path: Path) -> None:
    """A command may put a link wherever it can write; this process is not confined."""
    target = tmp_path / "target"
    target.mkdir()
    (root / "link").symlink_to(target)
    points = MountPoints(registry, str(root))
    with pytest.raises(OSError):
        points.acquire([f"{root}/link/a"], {})
    with pytest.raises(OSError):
        points.acquire([], {f"{root}/link/f": b""})
    assert names(target) == set()
    assert not points.in_use


def test_a_dangling_link_is_a_taken_name(root: Path, registry: str, tmp_path: Path) -> None:
    (root / "a").symlink_to(tmp_path / "nowhere")
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {f"{root}/a": b"x"})
    points.release()
    assert not (tmp_path / "nowhere").exists()


def test_a_session_that_hangs_holds_nobody_up_for_ever(
    root: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([], {})
    points.release()
    (guard,) = Path(registry).glob("*.lock")
    monkeypatch.setattr(mountpoints, "_PATIENCE", 0.05)
    with guard.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            points.acquire([], {})
    points.acquire([], {})
    points.release()


def test_folders_are_used_again(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    first = (root / "a").stat().st_ino
    points.release()
    MountPoints(registry, str(root)).acquire([f"{root}/b"], {})
    assert (root / "b").stat().st_ino == first


def test_which_placeholder_for_which_name(root: Path) -> None:
    (root / "there").mkdir()
    wanted = [
        f"{root}/{n}" for n in (".codex", ".mcp.json", ".bashrc", "there", "a/b/c", "there/d")
    ]
    folders, files = placeholders(wanted, str(root))
    assert folders == [f"{root}/{n}" for n in (".codex", ".mcp.json", "a", "there/d")]
    assert files == {f"{root}/.bashrc": b""}


def test_what_is_put_into_a_kept_folder_is_never_taken_away(
    root: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = MountPoints(registry, str(root))
    for _ in range(2):
        points.acquire([f"{root}/.codex"], {})
        points.release()
        assert names(root) == set()
        # From now on the kept folder's time of change counts as old enough to be relied on.
        later = time.time_ns() + 60_000_000_000
        monkeypatch.setattr("toolrest.sandbox.spares.time.time_ns", lambda later=later: later)
    points.acquire([f"{root}/.codex"], {})
    (root / ".codex/mine").write_text("kept")
    points.release()
    assert (root / ".codex/mine").read_text() == "kept"
