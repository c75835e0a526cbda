"""Checkpoints under bad luck: processes that die in the middle, sessions side by side."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from toolrest import Toolrest
from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.agent.undo.gc import DAY, collect_all
from toolrest.agent.undo.records import UndoError
from toolrest.sandbox.guard.placeholders import MountPoints

CHILD = """
import os, sys
from toolrest.agent.undo.checkpoints import Checkpoints
saved = Checkpoints(sys.argv[1], sys.argv[2])
step = sys.argv[3]
if step == "turn":
    saved.begin()
    for number in range(60):
        with open(os.path.join(sys.argv[2], f"f{number}"), "w") as file:
            file.write("changed")
    print("changed", flush=True)
    sys.stdin.read()
elif step == "begin":
    print("go", flush=True)
    while True:
        saved.end(saved.begin())
elif step == "undo":
    print("go", flush=True)
    saved.undo()
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(60):
        (folder / f"f{number}").write_text(f"original {number}")
    return folder


def start(home: Path, work: Path, step: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(home), str(work), step],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate()


def originals(work: Path) -> list[bool]:
    return [(work / f"f{n}").read_text() == f"original {n}" for n in range(60)]


def test_a_killed_turn_is_undone_by_the_next_process(work: Path, toolrest_home: Path) -> None:
    child = start(toolrest_home, work, "turn")
    assert child.stdout is not None
    assert child.stdout.readline() == "changed\n"
    saved = Checkpoints(str(toolrest_home), str(work))
    with pytest.raises(UndoError, match="still running"):
        saved.undo(1)
    kill(child)
    undone = saved.undo()
    assert len(undone.done) == 60
    assert all(originals(work))
    assert [turn.status for turn in saved.turns()] == ["interrupted", "done"]


def change_all(work: Path, home: Path) -> int:
    """A turn that changes every file; its number."""
    saved = Checkpoints(str(home), str(work))
    turn = saved.begin()
    for number in range(60):
        (work / f"f{number}").write_text("changed")
    saved.end(turn)
    return turn


def test_killed_while_saving_nothing_is_lost(work: Path, toolrest_home: Path) -> None:
    turn = change_all(work, toolrest_home)
    chance = random.Random(7)
    for _ in range(6):
        child = start(toolrest_home, work, "begin")
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.random() * 0.03)
        (work / f"f{chance.randrange(60)}").touch()
        kill(child)
    undone = Checkpoints(str(toolrest_home), str(work)).undo(turn)
    assert not undone.failed
    assert all(originals(work))


def test_killed_while_undoing_it_can_be_finished(work: Path, toolrest_home: Path) -> None:
    turn = change_all(work, toolrest_home)
    chance = random.Random(3)
    for _ in range(4):
        child = start(toolrest_home, work, "undo")
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.random() * 0.08)
        kill(child)
        texts = {(work / f"f{n}").read_text() in ("changed", f"original {n}") for n in range(60)}
        assert texts == {True}  # whole old or whole new, never a torn file
    if not all(originals(work)):
        assert not Checkpoints(str(toolrest_home), str(work)).undo(turn).failed
    assert all(originals(work))
    assert {path.name for path in work.iterdir()} == {f"f{n}" for n in range(60)}


def test_dying_before_each_rename_of_an_undo_leaves_whole_files(
    work: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = Checkpoints(str(toolrest_home), str(work))
    turn = saved.begin()
    for number in range(5):
        (work / f"f{number}").write_text("changed")
    saved.end(turn)
    real = os.rename
    for allowed in range(5):
        left = [allowed]

        def dying(*args: object, **kwargs: object) -> None:
            if not left[0]:  # noqa: B023
                raise KeyboardInterrupt
            left[0] -= 1  # noqa: B023
            real(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "rename", dying)
        one = Checkpoints(str(toolrest_home), str(work))
        with pytest.raises(KeyboardInterrupt):
            one.undo()
        for held in list(one._claims._held.values()):
            os.close(held)
        one._claims._held.clear()
        monkeypatch.setattr(os, "rename", real)
        for number in range(5):
            assert (work / f"f{number}").read_text() in ("changed", f"original {number}")
        (work / "f0").write_text("changed")
        again = Checkpoints(str(toolrest_home), str(work))
        again.undo(turn, force=True)
        assert all(originals(work))
        turn = again.begin()
        for number in range(5):
            (work / f"f{number}").write_text("changed")
        again.end(turn)


def test_two_sessions_in_one_workspace(work: Path, toolrest_home: Path) -> None:
    one = Checkpoints(str(toolrest_home), str(work))
    two = Checkpoints(str(toolrest_home), str(work))
    first = one.begin("one")
    (work / "f1").write_text("by one")
    second = two.begin("two")
    assert second == first + 1
    (work / "f2").write_text("by two")
    assert two.end(second).keys() == {"f2"}
    assert one.end(first).keys() == {"f1", "f2"}
    two.undo(second)
    assert (work / "f2").read_text() == "original 2"
    assert (work / "f1").read_text() == "by one"
    one.undo(first)
    assert all(originals(work))


def test_a_sub_agents_turn_goes_back_with_its_sessions(work: Path, toolrest_home: Path) -> None:
    parent = Checkpoints(str(toolrest_home), str(work))
    child = Checkpoints(str(toolrest_home), str(work))
    outer = parent.begin("session")
    (work / "f1").write_text("by the parent")
    inner = child.begin("session")
    (work / "f2").write_text("by the child")
    child.end(inner)
    (work / "f3").write_text("by the parent")
    parent.end(outer)
    assert parent.undo().plan.turn == outer
    assert all(originals(work))


def test_many_threads_at_once_keep_one_history(work: Path, toolrest_home: Path) -> None:
    problems: list[BaseException] = []

    def session(number: int) -> None:
        try:
            saved = Checkpoints(str(toolrest_home), str(work))
            for turn in range(3):
                opened = saved.begin(str(number))
                (work / f"f{number}").write_text(f"{number} {turn}")
                saved.end(opened)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=session, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    saved = Checkpoints(str(toolrest_home), str(work))
    assert [turn.number for turn in saved.turns()] == list(range(1, 19))
    saved.undo(1)
    assert all(originals(work))


def test_a_torn_last_line_is_cut_off(work: Path, toolrest_home: Path) -> None:
    saved = Checkpoints(str(toolrest_home), str(work))
    turn = saved.begin()
    (work / "f1").write_text("x")
    saved.end(turn)
    [journal] = (toolrest_home / "checkpoints").glob("*/journal.jsonl")
    with journal.open("ab") as file:
        file.write(b'{"t":"open","n":')
    other = Checkpoints(str(toolrest_home), str(work))
    other.undo()
    assert all(originals(work))
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_collecting_garbage_keeps_what_the_kept_turns_need(work: Path, toolrest_home: Path) -> None:
    saved = Checkpoints(str(toolrest_home), str(work))
    for text in ("a" * 100_000, "b" * 100_000, "c" * 100_000):
        turn = saved.begin()
        (work / "f0").write_text(text)
        saved.end(turn)
    [dry] = collect_all(str(toolrest_home), max_size=200_005, dry_run=True)
    assert dry.turns == 1
    [done] = collect_all(str(toolrest_home), max_size=200_005)
    assert (done.turns, done.problem) == (1, "")
    assert [turn.number for turn in saved.turns()] == [2, 3]
    saved.undo(2)
    assert (work / "f0").read_text() == "a" * 100_000
    again = Checkpoints(str(toolrest_home), str(work))
    turn = again.begin()
    (work / "f1").unlink()
    again.end(turn)
    [after] = collect_all(str(toolrest_home), max_age=0)
    assert after.problem == ""
    Checkpoints(str(toolrest_home), str(work)).undo()
    assert (work / "f1").read_text() == "original 1"


@pytest.mark.slow
@pytest.mark.usefixtures("any_sandbox")
async def test_a_session_forgets_old_turns_before_the_disk_is_full(
    work: Path, toolrest_home: Path
) -> None:
    given = {"checkpoints.max_size": 300_000}
    async with Toolrest(work, settings=given, home=toolrest_home) as rest:
        for number in range(12):
            command = f"head -c 90000 /dev/urandom > f0; echo {number} > f1"
            await rest.call("exec_command", {"cmd": command, "login": False})
            size = sum(path.stat().st_size for path in toolrest_home.glob("checkpoints/*/packs/*"))
            assert size < 900_000
        assert (work / "f1").read_text() == "11\n"
        await rest.undo()
        assert (work / "f1").read_text() == "10\n"


def test_a_running_turn_is_never_collected(work: Path, toolrest_home: Path) -> None:
    saved = Checkpoints(str(toolrest_home), str(work))
    saved.begin()
    [result] = collect_all(str(toolrest_home), max_age=0)
    assert "running" in result.problem


def test_checkpoints_of_a_folder_that_is_gone_go_after_their_time(
    work: Path, toolrest_home: Path
) -> None:
    saved = Checkpoints(str(toolrest_home), str(work))
    saved.end(saved.begin())
    for path in work.iterdir():
        path.unlink()
    work.rmdir()
    collect_all(str(toolrest_home))
    assert list((toolrest_home / "checkpoints").iterdir())
    [journal] = (toolrest_home / "checkpoints").glob("*/journal.jsonl")
    old = time.time() - 31 * DAY
    os.utime(journal, (old, old))
    [gone] = collect_all(str(toolrest_home))
    assert gone.freed > 0
    assert not list((toolrest_home / "checkpoints").iterdir())


def test_the_lock_of_a_turn_serves_the_next_one_too(work: Path, toolrest_home: Path) -> None:
    one = Checkpoints(str(toolrest_home), str(work))
    first, second = one.begin(), one.begin()
    [folder] = toolrest_home.glob("checkpoints/*/open")
    assert {path.name for path in folder.iterdir()} == {str(first), str(second)}
    one.end(first)
    one.end(second)
    third = one.begin()
    assert [path.name for path in folder.iterdir()] == [str(third)]
    # Another process sees that it is held, and what was put aside by a process that is gone goes.
    (folder / "idle-of-the-dead").touch()
    other = Checkpoints(str(toolrest_home), str(work))
    other.end(other.begin())
    assert third in other._journal.open
    assert not (folder / "idle-of-the-dead").exists()
    one.end(third)
    assert not one._journal.open


async def test_what_stands_for_a_protected_name_is_not_brought_back(
    work: Path, toolrest_home: Path
) -> None:
    """A killed session leaves placeholders; the next turn removes them, and its undo makes none."""
    names = (".envrc", ".mcp.json", ".vscode")
    registry = Path(toolrest_home, "probe")
    points = MountPoints(str(registry), str(work))
    points.acquire([str(work / name) for name in names], {})
    (work / ".vscode/settings.json").write_text("mine")
    saved = Checkpoints(str(toolrest_home), str(work))
    turn = saved.begin()
    points.release()
    (work / "f0").write_text("changed")
    assert saved.end(turn).keys() == {"f0"}
    saved.undo()
    assert {path.name for path in work.iterdir() if path.is_dir()} == {".vscode"}
    assert (work / "f0").read_text() == "original 0"
    assert (work / ".vscode/settings.json").read_text() == "mine"
