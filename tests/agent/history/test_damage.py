"""What is told is written down before, and a damaged journal costs only what was damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest import ConfigError, tool
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.history.rollout import Loss, read_rollout, recover
from toolrest.agent.history.stored_sessions import latest_session, summaries
from toolrest.agent.reports.exec_json import ThreadEvents
from toolrest.events import ToolCallEnd, Warning  # noqa: A004 - the event
from toolrest.testing import Call, Pause, Say
from toolrest.wire.items.pairing import call_id_of, is_output

Make = Callable[..., Conversation]


@tool(mutating=False)
def fast() -> str:
    """Answer at once."""
    return "quick"


def outputs(path: str) -> dict[str, Any]:
    """The outputs of a session that is killed now and resumed."""
    items = read_rollout(path).items
    return {call_id_of(item): item["output"] for item in items if is_output(item)}


async def test_a_call_has_its_output_in_the_journal_before_its_end_is_told(agent: Make) -> None:
    """The end of a call that was told and not written was done twice after a kill."""
    script = [[Call("fast", call_id="a"), Call("fast", call_id="b"), Pause(0.05)], "done"]
    session = agent(script, tools=[fast])
    path = str(session.journal.path)
    seen: list[str | None] = []

    def hear(event: Any) -> None:
        if isinstance(event, ToolCallEnd):
            seen.append(outputs(path).get(event.call_id))

    session.rest.subscribe(hear)
    assert (await session.run("go")).text == "done"
    assert seen == ["quick", "quick"]
    order = [call_id_of(item) for item in session.history if is_output(item)]
    assert order == ["a", "b"]
    assert [item for item in read_rollout(path).items if is_output(item)] == [
        item for item in session.history if is_output(item)
    ]


class FullDisk:
    """A disk without room for a session's journal, from when `full` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.session: Conversation | None = None
        self._real = os.write
        monkeypatch.setattr(os, "write", self._write)

    def _write(self, file: int, data: Any) -> int:
        if self.full and self.session is not None and file == self.session.journal._file:
            raise OSError(28, "No space left on device")
        return self._real(file, data)


@pytest.mark.parametrize("early", [False, True])
async def test_an_output_that_cannot_be_written_is_not_told_as_done(
    agent: Make, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    disk = FullDisk(monkeypatch)

    @tool(mutating=False)
    def fill() -> str:
        """Fill the disk."""
        disk.full = True
        return "quick"

    script = [[Call("fill", call_id="a"), *([Pause(0.05)] if early else [])], "done"]
    session = disk.session = agent(script, tools=[fill])
    lines: list[dict[str, Any]] = []
    session.rest.subscribe(ThreadEvents(lines.append))
    result = await session.run("go")
    assert (result.status, result.reason) == ("failed", "fatal")
    ends = [line["item"] for line in lines if line["type"] == "item.completed"]
    assert [end["status"] for end in ends if end["type"] == "tool_call"] == ["failed"]
    assert outputs(str(session.journal.path)) == {}
    disk.full = False
    assert (await session.run("again")).text == "done"
    assert outputs(str(session.journal.path)) == {"a": "quick"}


async def test_a_thread_has_started_once_its_prompt_is_written(agent: Make) -> None:
    session = agent(["done"])
    path = str(session.journal.path)
    lines: list[tuple[str, bool]] = []

    def write(line: dict[str, Any]) -> None:
        rollout = read_rollout(path)
        whole = [text for _, text in rollout.messages()] == ["the task"]
        lines.append((line["type"], whole and "sandbox_policy" in rollout.context))

    thread = ThreadEvents(write)
    thread.thread_started(session.id)
    session.rest.subscribe(thread)
    await session.run("the task")
    assert [kind for kind, _ in lines][:2] == ["thread.started", "turn.started"]
    assert all(written for _, written in lines)


async def test_where_it_cannot_be_written_there_is_an_error_in_its_place(
    agent: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    session = disk.session = agent(["done"])
    disk.full = True
    lines: list[dict[str, Any]] = []
    thread = ThreadEvents(lines.append)
    thread.thread_started(session.id)
    session.rest.subscribe(thread)
    await session.run("the task")
    assert [line["type"] for line in lines] == ["error", "turn.started", "turn.failed"]
    assert "No space left" in lines[0]["message"]


# Damage


async def stored(agent: Make) -> Path:
    """The journal of a session with a call and two turns."""
    session = agent([[Say("so"), Call("fast", call_id="a")], "one", "two"], tools=[fast])
    await session.run("first")
    await session.run("second")
    await session.aclose()
    assert session.journal.path is not None
    return Path(session.journal.path)


DAMAGE: dict[str, tuple[bytes, Loss]] = {
    "half": (b'{"timestamp":"2026-01-01T00:00:00.000Z","typ\n', Loss.NOT_JSON),
    "zeros": (b"\0" * 40 + b"\n", Loss.NOT_JSON),
    "a list": (b"[1]\n", Loss.NOT_A_RECORD),
    "no payload": (b'{"type":"response_item"}\n', Loss.NOT_A_RECORD),
    "no item": (b'{"type":"response_item","payload":{"role":"user"}}\n', Loss.NOT_AN_ITEM),
    "nested": (b"[" * 100_000 + b"\n", Loss.NOT_JSON),
}


@pytest.mark.parametrize("name", DAMAGE)
async def test_one_line_says_what_was_lost_and_the_rest_is_there(agent: Make, name: str) -> None:
    path = await stored(agent)
    whole = path.read_bytes().splitlines(keepends=True)
    bad, why = DAMAGE[name]
    for at in range(len(whole)):
        path.write_bytes(b"".join([*whole[:at], bad, *whole[at + 1 :]]))
        rollout = read_rollout(str(path))
        assert rollout.lost == [(at + 1, why)]
        assert rollout.thread_id in path.name
        kept = [json.loads(line)["payload"] for n, line in enumerate(whole) if n != at]
        items = [item for item in kept if item.get("type") in ("message", "function_call")]
        assert [item for item in rollout.items if not is_output(item)] == items
    said: list[str] = []
    session = agent(["on"], resume=str(path))
    session.rest.subscribe(
        lambda event: said.append(event.message) if isinstance(event, Warning) else None
    )
    assert (await session.run("go on")).text == "on"
    (line,) = [text for text in said if "goes on without" in text]
    assert f"line {len(whole)} ({why})" in line


async def test_a_session_without_its_first_line_is_listed_and_goes_on(
    agent: Make, toolrest_home: Path, workspace: Path
) -> None:
    path = await stored(agent)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([b"\xff\xfe{\n", *whole[1:]]))
    (row,) = summaries(str(toolrest_home), str(workspace))
    assert row.title == "first"
    assert latest_session(str(toolrest_home), str(workspace)).path == str(path)
    session = agent(["on"], resume=str(path))
    assert session.id in path.name
    assert (await session.run("go on")).text == "on"
    assert read_rollout(str(path)).meta["cwd"] == str(workspace)


def test_a_last_line_that_was_cut_is_named() -> None:
    head = b'{"type":"session_meta","payload":{"id":"x"}}\n'
    rollout = recover("somewhere", [head, b'{"type":"resp'])
    assert rollout.lost == [(2, Loss.CUT)]
    assert rollout.loss is not None
    assert "line 2 (cut off)" in rollout.loss


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=40) | st.sampled_from([bad for bad, _ in DAMAGE.values()])))
def test_recovery_gives_a_session_or_says_that_there_is_none(lines: list[bytes]) -> None:
    head = b'{"type":"session_meta","payload":{"id":"x"}}\n'
    assert len(recover("somewhere", [head, *lines]).lost) <= len(lines)
    with pytest.raises(ConfigError, match="not a session"):
        recover("somewhere", lines)
