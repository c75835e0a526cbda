"""Undo over the control socket: the turn that was shown, of this session, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.control.conftest import Controlled, Open, adding, finished

from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.control.controls import ControlError
from toolrest.gate.approval.request import Review


async def ended(one: Controlled) -> None:
    """Run a turn in which everything is approved."""
    one.front.answer = asyncio.get_running_loop().create_future()
    one.front.answer.set_result(Review("approved"))
    await finished(one.session.run("go"))


async def test_undo_is_for_the_turn_that_was_shown(opened: Open, workspace: Path) -> None:
    """Of two clicks on one button the second takes back nothing."""
    one = opened([adding("a.txt"), "done", adding("b.txt"), "done"])
    await ended(one)
    first = await one.undoable()
    await ended(one)
    turn = await one.undoable(after=first)
    answers = await asyncio.gather(
        *(one.ask("undo", turn=turn) for _ in range(3)), return_exceptions=True
    )
    assert sum(isinstance(answer, ControlError) for answer in answers) == 2
    assert str(answers).count(f"turn {turn} is not the newest of this session") == 2
    assert (workspace / "a.txt").exists()
    assert not (workspace / "b.txt").exists()
    for wrong in (None, "2", turn, 99):
        with pytest.raises(ControlError):
            await one.ask("undo", turn=wrong)
    assert (workspace / "a.txt").exists()
    assert await one.undoable(after=turn) == first
    await one.ask("undo", turn=first)
    assert not (workspace / "a.txt").exists()


async def test_a_resumed_session_knows_the_turn_to_take_back(opened: Open) -> None:
    one = opened([adding("a.txt"), "done"])
    await ended(one)
    turn = await one.undoable()
    await one.session.aclose()
    again = opened(["done"], resume=one.session.journal.path)
    assert await again.undoable() == turn


async def test_undo_is_for_the_sessions_own_turns(opened: Open, workspace: Path) -> None:
    """Another session in the same folder has changed something since."""
    one, other = opened([adding("a.txt"), "done"]), opened([adding("b.txt"), "done"])
    await ended(one)
    await ended(other)
    with pytest.raises(ControlError, match=f"of the session {other.session.id}"):
        await one.ask("undo", turn=await one.undoable())
    with pytest.raises(ControlError, match="changed this folder later"):
        await one.ask("undo", turn=await other.undoable())
    assert (workspace / "b.txt").exists()
    await other.ask("undo", turn=await other.undoable())
    await one.ask("undo", turn=await one.undoable())
    assert not (workspace / "a.txt").exists()


async def test_a_turn_that_another_process_has_just_taken_back_is_not_taken_for_the_one_before(
    opened: Open, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`toolrest undo` comes in at the last moment before the session's own undo."""
    one = opened([adding("a.txt"), "done", adding("b.txt"), "done"])
    await ended(one)
    first = await one.undoable()
    await ended(one)
    turn = await one.undoable(after=first)
    real = Checkpoints.undo

    def late(checkpoints: Checkpoints, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(Checkpoints, "undo", real)
        Checkpoints(one.home, str(workspace)).undo(turn)
        return real(checkpoints, *args, **options)

    monkeypatch.setattr(Checkpoints, "undo", late)
    with pytest.raises(ControlError, match=f"turn {turn} is not the newest of this session"):
        await one.ask("undo", turn=turn)
    assert not (workspace / "b.txt").exists()
    assert (workspace / "a.txt").exists()
