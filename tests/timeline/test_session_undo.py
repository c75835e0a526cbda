"""Undo of a session: its own last turn, said as it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Make

from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.history.stored_sessions import exact_session
from toolrest.agent.open_session import fork
from toolrest.agent.undo import checkpoints
from toolrest.agent.undo.plan import Item, Kept, UndoPlan
from toolrest.agent.undo.records import UndoError
from toolrest.testing import Call
from toolrest.timeline import session_text


def adding(name: str) -> Call:
    patch = f"*** Begin Patch\n*** Add File: {name}\n+x\n*** End Patch"
    return Call("apply_patch", {"input": patch})


async def wrote(session: Conversation) -> Conversation:
    assert (await session.run("go")).status == "completed"
    return session


async def test_undo_takes_back_no_turn_of_another_session(agent: Make, workspace: Path) -> None:
    one = await wrote(agent([adding("a.txt"), "done"]))
    other = await wrote(agent([adding("b.txt"), "done"]))
    third = agent([])
    with pytest.raises(UndoError, match=f"turn 2 of the session {other.id}"):
        await session_text.undo(one)
    with pytest.raises(UndoError, match="this session has changed nothing"):
        await session_text.undo(third)
    assert (await one.rest.newest_turn(), await third.rest.newest_turn()) == (1, None)
    assert "remove b.txt" in await session_text.undo(other)
    assert "remove a.txt" in await session_text.undo(one)
    assert list(workspace.iterdir()) == []


async def test_a_copy_takes_back_what_the_session_did_before_it(
    agent: Make,
    workspace: Path,
    toolrest_home: Path,
) -> None:
    one = await wrote(agent([adding("a.txt"), "done"]))
    path = str(one.journal.path)
    await one.aclose()
    home = str(toolrest_home)
    copy = fork(home, exact_session(home, fork(home, path)).path)  # a copy of a copy
    second = agent([], resume=exact_session(home, copy).path)
    again = await wrote(agent([adding("b.txt"), "done"], resume=path))
    with pytest.raises(UndoError, match=f"of the session {again.id}"):
        await session_text.undo(second)
    await session_text.undo(again)
    assert "remove a.txt" in await session_text.undo(second)
    assert list(workspace.iterdir()) == []


async def test_what_could_not_be_taken_back_is_said(
    agent: Make,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = await wrote(agent([adding("a.txt"), "done"]))

    def planned(*_: Any, **__: Any) -> UndoPlan:
        items = [Item("a.txt", None, None), Item("b.txt", None, None)]
        return UndoPlan(1, (1,), items, [Kept("c.txt", "theirs")], [Kept("d.bin", "too large")])

    def restored(_: str, items: list[Item], __: Any) -> tuple[list[Item], list[Kept]]:
        return items[:1], [Kept("b.txt", "no space left")]

    monkeypatch.setattr(checkpoints, "plan", planned)
    monkeypatch.setattr(checkpoints, "restore", restored)
    assert await session_text.undo(session) == [
        "Undid the last turn: 1 file, 3 left as they are",
        "remove a.txt",
        "not done: b.txt (no space left)",
        "stays: c.txt (theirs)",
        "cannot be brought back: d.bin (too large)",
    ]
