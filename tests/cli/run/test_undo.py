"""`toolrest undo` as a person types it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forked

from toolrest.agent.undo.checkpoints import Checkpoints


def toolrest(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.toolrest(*words, cwd=work)


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


@pytest.fixture
def overlapping(work: Path, toolrest_home: Path) -> Path:
    """A folder in which two sessions have worked at the same time; the newer turn is the second's.

    Its first file it has changed alone; what came then may be of either.
    """
    home = str(toolrest_home)
    one, two = Checkpoints(home, str(work)), Checkpoints(home, str(work))
    first = one.begin("session-one", "write the docs")
    (work / "first").write_text("by one\n")
    second = two.begin("session-two", "fix the test")
    (work / "both").write_text("by one\n")
    two.end(second)
    one.end(first)
    return work


def test_what_may_be_another_sessions_work_is_not_taken_back_unasked(overlapping: Path) -> None:
    undone = toolrest(overlapping, "undo")
    assert undone.returncode == 2
    assert "1 path may be the work of other sessions that ran meanwhile:" in undone.stdout
    assert "both: turn 1 of session session- (write the docs)" in undone.stdout
    assert "--force puts these back" in undone.stderr
    assert (overlapping / "both").exists()
    assert "both: turn 1" in toolrest(overlapping, "undo", "--dry-run").stdout
    assert toolrest(overlapping, "undo", "--force").returncode == 0
    assert (overlapping / "first").exists()
    assert not (overlapping / "both").exists()


@pytest.mark.parametrize(("answer", "stays"), [(b"n\n", True), (b"y\n", False)])
def test_at_a_terminal_it_is_asked(overlapping: Path, answer: bytes, stays: bool) -> None:
    leader, follower = pty.openpty()
    os.write(leader, answer)
    argv = [sys.executable, "-m", "toolrest", "undo"]
    code = subprocess.call(
        argv, cwd=overlapping, stdin=follower, stdout=subprocess.DEVNULL, stderr=follower
    )
    os.close(follower)
    said = os.read(leader, 1 << 16)
    os.close(leader)
    assert b"Put these back, too?" in said
    assert (code, (overlapping / "both").exists()) == (int(stays), stays)


def test_sessions_one_after_the_other_need_no_question(work: Path, toolrest_home: Path) -> None:
    for name in ("one", "two"):
        session = Checkpoints(str(toolrest_home), str(work))
        turn = session.begin(name)
        (work / name).write_text("new\n")
        session.end(turn)
    undone = toolrest(work, "undo", "--turn", "1")
    assert undone.returncode == 0
    assert os.listdir(work) == ["a"]
