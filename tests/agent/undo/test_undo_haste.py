"""A small workspace is saved on the event loop, which never waits there for long."""

from __future__ import annotations

import fcntl
from functools import partial
from pathlib import Path

import pytest

from toolrest import Toolrest
from toolrest.agent.undo import checkpoints, journal
from toolrest.agent.undo import turn_checkpoint as hook
from toolrest.agent.undo.checkpoints import Checkpoints


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a").write_text("one")
    return folder


@pytest.fixture
def saved(work: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoints:
    """Has looked once, so it is known that looking takes no time, however busy the machine is."""
    monkeypatch.setattr(checkpoints, "_QUICK", 60.0)
    made = Checkpoints(str(toolrest_home), str(work))
    made.end(made.begin())
    made.end(made.begin())
    return made


def begun(saved: Checkpoints) -> int:
    number = saved.at_once(saved.begin)
    assert number is not None
    return number


def test_a_turn_at_once_is_undone_like_any_other(work: Path, saved: Checkpoints) -> None:
    number = begun(saved)
    (work / "a").write_text("two")
    (work / "b").mkdir()
    changes = saved.at_once(partial(saved.end, number))
    assert changes is not None
    assert set(changes) == {"a", "b"}
    assert not saved.undo().failed
    assert (work / "a").read_text() == "one"
    assert not (work / "b").exists()


def test_what_was_never_looked_at_is_not_looked_at_in_haste(
    work: Path, toolrest_home: Path
) -> None:
    fresh = Checkpoints(str(toolrest_home), str(work))
    assert fresh.at_once(fresh.begin) is None
    assert not fresh.exists


@pytest.mark.parametrize("much", ["entries", "bytes", "folders"])
def test_much_to_look_at_is_left_for_later_and_then_found(
    work: Path, saved: Checkpoints, much: str
) -> None:
    number = begun(saved)
    (work / "a").write_text("two")
    if much == "entries":
        for index in range(300):
            (work / f"f{index}").touch()
    elif much == "folders":
        for index in range(20):
            for inner in range(20):
                (work / f"d{index}" / f"f{inner}").mkdir(parents=True)
    else:
        (work / "large").write_bytes(b"x" * 300_000)
    assert saved.at_once(partial(saved.end, number)) is None
    assert len(saved.end(number)) >= 2
    assert not saved.undo().failed
    assert [path.name for path in work.iterdir()] == ["a"]
    assert (work / "a").read_text() == "one"


def test_somebody_elses_lock_is_not_waited_for(saved: Checkpoints, toolrest_home: Path) -> None:
    def refused(seconds: float) -> None:
        raise AssertionError(f"it waited for {seconds} s")

    [lock] = toolrest_home.glob("checkpoints/*/lock")
    with lock.open() as held, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(held, fcntl.LOCK_EX)
        patch.setattr("toolrest.agent.undo.journal.time.sleep", refused)
        assert saved.at_once(saved.begin) is None
    assert saved.at_once(partial(saved.end, begun(saved))) == {}


def test_what_another_session_wrote_is_not_read_in_haste(
    work: Path, saved: Checkpoints, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_HASTY_TAIL", 300)
    other = Checkpoints(str(toolrest_home), str(work))
    for text in ("two", "three"):
        number = other.begin("other")
        (work / "a").write_text(text)
        other.end(number)
    assert saved.at_once(saved.begin) is None
    saved.end(saved.begin())
    assert [turn.session for turn in saved.turns()].count("other") == 2
    assert saved.at_once(partial(saved.end, begun(saved))) == {}


def test_a_folder_that_was_moved_away_is_made_anew(
    work: Path, saved: Checkpoints, toolrest_home: Path
) -> None:
    [folder] = toolrest_home.glob("checkpoints/*")
    folder.rename(toolrest_home / "away")
    number = saved.begin()
    (work / "a").write_text("two")
    assert set(saved.end(number)) == {"a"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not saved.undo().failed
    assert (work / "a").read_text() == "one"


@pytest.mark.usefixtures("any_sandbox")
async def test_commands_in_a_small_workspace_need_no_thread(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Toolrest(work) as rest:
        for _ in range(2):
            await rest.call("exec_command", {"cmd": "echo first > b", "login": False})
        monkeypatch.setattr(checkpoints, "_QUICK", 60.0)
        await rest.call("exec_command", {"cmd": "echo again > b", "login": False})

        async def refused(*_: object) -> None:
            raise AssertionError("a thread was used")

        monkeypatch.setattr(hook, "run_in_thread", refused)
        assert (await rest.call("exec_command", {"cmd": "umask 022", "login": False})).success
        monkeypatch.undo()
        await rest.call("exec_command", {"cmd": "rm a", "login": False})
        await rest.undo()
    assert (work / "a").read_text() == "one"
