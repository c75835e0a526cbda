"""`toolrest undo` as a person types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def toolrest(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolrest", *words],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a").write_text("before\n")
    return folder


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_list_look_undo_and_back(work: Path) -> None:
    call = ("call", "exec_command", '{"cmd": "echo after > a; echo new > b"}')
    assert toolrest(work, *call, "-s", "workspace-write").returncode == 0
    assert (work / "a").read_text() == "after\n"

    listed = toolrest(work, "undo", "--list").stdout
    assert "2 paths" in listed
    assert "exec_command" in listed

    looked = toolrest(work, "undo", "--dry-run")
    assert "restore a" in looked.stdout
    assert "remove b" in looked.stdout
    assert (work / "a").read_text() == "after\n"

    undone = toolrest(work, "undo")
    assert undone.returncode == 0, undone.stderr
    assert (work / "a").read_text() == "before\n"
    assert not (work / "b").exists()
    assert "toolrest undo --turn 2" in undone.stdout

    assert toolrest(work, "undo", "--turn", "2").returncode == 0
    assert (work / "b").exists()


@pytest.mark.needs("sandbox")
def test_what_stays_is_named_and_is_exit_code_1(work: Path) -> None:
    call = ("call", "exec_command", '{"cmd": "echo after > a"}', "-s", "workspace-write")
    assert toolrest(work, *call).returncode == 0
    (work / "a").write_text("mine\n")
    undone = toolrest(work, "undo")
    assert undone.returncode == 1
    assert "stays as it is" in undone.stdout
    assert (work / "a").read_text() == "mine\n"


def test_nothing_to_undo_is_said(work: Path) -> None:
    done = toolrest(work, "undo")
    assert done.returncode == 2
    assert "nothing to undo" in done.stderr


@pytest.mark.needs("sandbox")
def test_a_folder_below_points_to_the_one_with_checkpoints(work: Path) -> None:
    call = ("call", "exec_command", '{"cmd": "mkdir d"}', "-s", "workspace-write")
    assert toolrest(work, *call).returncode == 0
    done = toolrest(work / "d", "undo")
    assert done.returncode == 2
    assert f"-C {work}" in done.stderr


@pytest.mark.needs("sandbox")
def test_what_is_not_saved_is_listed_before_anything_happens(work: Path) -> None:
    (work / ".gitignore").write_text("*.bin\n")
    (work / "big.bin").write_bytes(b"b" * (1 << 20) + b"!")
    call = ("call", "exec_command", '{"cmd": "rm a big.bin"}', "-s", "workspace-write")
    assert toolrest(work, *call).returncode == 0
    undone = toolrest(work, "undo")
    assert undone.returncode == 1
    lines = undone.stdout.splitlines()
    assert "  bring back a" in lines
    [lost] = [line for line in lines if "big.bin" in line]
    assert "cannot be brought back, it was not saved" in lost
    assert "ignored and over 1,048,576 bytes" in lost
    assert lines.index(lost) < len(lines) - 1
    assert (work / "a").exists()


@pytest.mark.needs("sandbox")
def test_names_of_files_cannot_act_on_the_terminal(work: Path) -> None:
    call = ("call", "exec_command", '{"cmd": "touch $(printf \'x\\\\033[2Ky\')"}')
    assert toolrest(work, *call, "-s", "workspace-write").returncode == 0
    looked = toolrest(work, "undo", "--dry-run")
    assert "remove x⟨ESC⟩[2Ky" in looked.stdout
    for words in (looked.stdout, toolrest(work, "undo", "--list").stdout):
        assert "\x1b" not in words
