"""What a person writes while a turn is under way is the person's: undo keeps it and says so."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.gate.call.turn import Turn
from toolrest.items import FunctionCall, ToolOutput

FAR = 30_000_000
"""Nanoseconds that no time stamp lags behind."""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("a.txt", "mine.txt", "both.txt"):
        (folder / name).write_text(f"{name} before\n")
    return folder


def by_hand(path: Path, text: str) -> None:
    """Save a file, as often as it takes to be clearly after one call and before the next."""
    called = time.time_ns()
    path.parent.mkdir(exist_ok=True)
    while True:
        path.write_text(text)
        if path.stat().st_ctime_ns > called + FAR:
            break
    while time.time_ns() <= path.stat().st_ctime_ns + FAR:
        pass


async def do(turn: Turn, name: str, **arguments: Any) -> ToolOutput:
    output = await turn.start(FunctionCall("1", name, arguments)).output()
    assert output.failure is None, output.text
    return output


async def test_edits_by_hand_between_two_calls_stay(work: Path) -> None:
    """Failed before: they went with the turn's own changes, and the plan did not say so."""
    async with Toolrest(work, tools=["all"]) as rest:
        async with rest.turn() as turn:
            await do(turn, "write_file", path="a.txt", content="by the agent\n")
            await do(turn, "write_file", path="both.txt", content="by the agent\n")
            by_hand(work / "mine.txt", "by hand\n")
            by_hand(work / "both.txt", "by the agent, and by hand\n")
            by_hand(work / "new" / "mine.txt", "by hand\n")
            await do(turn, "write_file", path="last.txt", content="by the agent\n")
        undone = await rest.undo()
        assert (work / "a.txt").read_text() == "a.txt before\n"
        assert not (work / "last.txt").exists()
        assert (work / "mine.txt").read_text() == "by hand\n"
        assert (work / "both.txt").read_text() == "by the agent, and by hand\n"
        assert (work / "new" / "mine.txt").read_text() == "by hand\n"
        kept = [kept.path for kept in undone.plan.kept]
        assert kept == ["both.txt", "mine.txt", "new", "new/mine.txt"]
        assert undone.failed == []
        await rest.undo(undone.plan.turn, force=True)
    assert (work / "mine.txt").read_text() == "mine.txt before\n"
    assert not (work / "new").exists()


async def test_a_turn_in_which_only_a_person_wrote_has_nothing_to_undo(work: Path) -> None:
    """Failed before: undo took the person's edits back, and not the turn before."""
    async with Toolrest(work, tools=["all"]) as rest:
        await rest.call("write_file", {"path": "a.txt", "content": "by the agent\n"})
        async with rest.turn() as turn:
            await do(turn, "write_file", path="a.txt", content="by the agent\n")
            by_hand(work / "mine.txt", "by hand\n")
        await rest.undo()
    assert (work / "a.txt").read_text() == "a.txt before\n"
    assert (work / "mine.txt").read_text() == "by hand\n"


@pytest.mark.needs("sandbox")
async def test_what_a_command_moves_and_touches_is_its_own(work: Path) -> None:
    (work / "d").mkdir()
    by_hand(work / "d" / "x", "x\n")
    async with Toolrest(work, tools=["all"]) as rest:
        async with rest.turn() as turn:
            line = "mv d e && cp -p a.txt old.txt && touch -d 2001-01-01 mine.txt && rm both.txt"
            await do(turn, "exec_command", cmd=line)
            by_hand(work / "hand.txt", "by hand\n")
            (work / "mine.txt").chmod(0o600)  # as a program does that indexes files
        undone = await rest.undo()
    assert [kept.path for kept in undone.plan.kept] == ["hand.txt"]
    assert {path.name for path in work.iterdir()} == {
        *("a.txt", "mine.txt", "both.txt", "d", "hand.txt")
    }


@pytest.mark.needs("sandbox")
async def test_while_a_command_goes_on_nobody_is_told_apart(work: Path) -> None:
    async with Toolrest(work, tools=["all"]) as rest:
        async with rest.turn() as turn:
            await do(turn, "exec_command", cmd="echo x > a.txt; exec cat", tty=True)
            by_hand(work / "mine.txt", "perhaps by the command\n")
        undone = await rest.undo()
    assert undone.plan.kept == []
    assert (work / "mine.txt").read_text() == "mine.txt before\n"
