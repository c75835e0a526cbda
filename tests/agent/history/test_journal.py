"""The rollout: its layout, its privacy, its lock, and what happens when it cannot be written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import ConfigError, tool
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.history.rollout import read_rollout
from toolrest.agent.history.stored_sessions import (
    find_session,
    latest_session,
    stored_sessions,
    summaries,
)
from toolrest.agent.open_session import fork, git_facts
from toolrest.testing import Call, ScriptedModel, context_full

Make = Callable[..., Conversation]
Lines = Callable[[Conversation | str], list[dict[str, Any]]]


@tool(mutating=False)
def echo(text: str) -> str:
    """Say it again."""
    return text


async def test_the_layout(agent: Make, lines: Lines, toolrest_home: Path) -> None:
    session = agent([[Call("echo", {"text": "a"})], "done"], tools=[echo])
    await session.run("go")
    found = lines(session)
    assert [line["ordinal"] for line in found] == list(range(len(found)))
    assert found[0]["type"] == "session_meta"
    meta = found[0]["payload"]
    assert meta["id"] == session.id
    assert meta["base_instructions"]["text"] == session.instructions
    assert {"timestamp", "cwd", "originator", "cli_version", "source"} <= meta.keys()
    kinds = [line["payload"].get("type") or line["type"] for line in found[1:]]
    assert kinds == [
        "message", "message", "turn_context", "message",
        "function_call", "token_count", "function_call_output", "message", "token_count",
    ]  # fmt: skip
    path = session.journal.path
    assert path is not None
    assert Path(path).match(
        f"{toolrest_home}/sessions/20??/??/??/rollout-20??-??-??T??-??-??-{session.id}.jsonl"
    )


async def test_nobody_else_can_read_it(agent: Make) -> None:
    session = agent(["ok"])
    await session.run("go")
    assert session.journal.path is not None
    path = Path(session.journal.path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in list(path.parents)[:4]:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_ephemeral_sessions_leave_nothing(agent: Make, toolrest_home: Path) -> None:
    await agent(["ok"], ephemeral=True).run("go")
    assert stored_sessions(str(toolrest_home)) == []


async def test_a_session_that_is_open_is_locked(agent: Make) -> None:
    session = agent(["ok", "ok"])
    await session.run("go")
    with pytest.raises(ConfigError, match="is open in another process"):
        agent(["never"], resume=session.journal.path)
    await session.aclose()
    assert (await agent(["yes"], resume=session.journal.path).run("go")).text == "yes"


async def test_a_copy_of_the_file_in_a_child_does_not_hold_the_lock(agent: Make) -> None:
    """Failed before: a program that was being started kept a session from being opened again."""
    session = agent(["ok"])
    await session.run("go")
    copy = os.dup(session.journal._file)  # as a child has it between fork and exec
    try:
        await session.aclose()
        assert (await agent(["yes"], resume=session.journal.path).run("go")).text == "yes"
    finally:
        os.close(copy)


async def test_resume_keeps_id_history_usage_and_adds_only_what_is_new(agent: Make) -> None:
    first = agent(["one"])
    await first.run("go")
    await first.aclose()
    model = ScriptedModel(["two"])
    second = agent(model, resume=first.journal.path)
    result = await second.run("more")
    assert second.id == first.id
    request = model.requests[0]
    assert request.session_id == first.id
    roles = [item.get("role") for item in request.items]
    assert roles == ["developer", "user", "user", "assistant", "user"]
    assert result.usage.input == 100
    assert second.usage.input == 200


async def test_resume_tells_what_changed(agent: Make) -> None:
    first = agent(["one"])
    await first.run("go")
    await first.aclose()
    model = ScriptedModel(["two"], name="another")
    second = agent(model, resume=first.journal.path, sandbox_mode="read-only")
    seen = [event.to_json() async for event in second.stream("more")]
    roles = [item.get("role") for item in model.requests[0].items]
    assert roles == ["developer", "user", "user", "assistant", "developer", "user"]
    assert any("goes on with another" in str(event.get("message")) for event in seen)


async def test_a_summary_is_what_is_resumed(agent: Make) -> None:
    first = agent([context_full(), "the summary", "done"])
    await first.run("go")
    before = list(first.history)
    await first.aclose()
    assert first.journal.path is not None
    assert read_rollout(first.journal.path).items == before


async def test_ids_from_before_a_summary_are_not_given_again(agent: Make) -> None:
    calls = [Call("echo", {"text": "a"}, "call_0")]
    first = agent([calls, context_full(), "the summary", "done"], tools=[echo])
    await first.run("go")
    await first.aclose()
    second = agent([calls, "done"], resume=first.journal.path, tools=[echo])
    await second.run("more")
    ids = [item["call_id"] for item in second.history if "call_id" in item]
    assert ids == ["call_0_2", "call_0_2"]


async def test_torn_and_foreign_lines_are_skipped(agent: Make) -> None:
    first = agent(["one"])
    await first.run("go")
    await first.aclose()
    assert first.journal.path is not None
    path = Path(first.journal.path)
    with path.open("ab") as file:
        file.write(b'[]\nnot json\n{"type": 3, "payload": {}}\n{"timestamp":"x","type":"respon')
    second = agent(["two"], resume=str(path))
    await second.run("more")
    await second.aclose()
    rollout = read_rollout(str(path))
    assert [item["role"] for item in rollout.items][-2:] == ["user", "assistant"]


async def test_a_rollback_of_another_program_is_honoured(tmp_path: Path) -> None:
    import json

    def said(text: str, role: str = "user") -> dict[str, Any]:
        part = {"type": "input_text", "text": text}
        return {"type": "message", "role": role, "content": [part]}

    rows = [
        ("session_meta", {"id": "abc"}),
        ("response_item", said("<environment_context>")),
        ("response_item", said("first")),
        ("response_item", said("one", "assistant")),
        ("response_item", said("second")),
        ("response_item", said("two", "assistant")),
        ("response_item", said("be quiet", "system")),
        ("event_msg", {"type": "thread_rolled_back", "num_turns": 1}),
    ]
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(json.dumps({"type": k, "payload": p}) + "\n" for k, p in rows))
    items = read_rollout(str(path)).items
    assert [item["content"][0]["text"] for item in items] == [
        "<environment_context>", "first", "one",
    ]  # fmt: skip


async def test_a_full_disk_ends_the_turn_and_nothing_is_lost(
    agent: Make, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    ran: list[int] = []

    @tool
    def effect() -> str:
        """Count."""
        ran.append(1)
        return "ok"

    session = agent([[Call("effect")], "fine"], tools=[effect], on_ask="allow")
    real = os.write
    full = False

    def write(file: int, data: Any) -> int:
        if full and file == session.journal._file:
            real(file, bytes(data)[:7])
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)

    def stream_full(request: Any) -> Any:
        nonlocal full
        full = True
        return [Call("effect")]

    session.model._player._steps = iter([stream_full, "fine"])  # type: ignore[attr-defined]
    result = await session.run("go")
    assert (result.status, result.reason) == ("failed", "fatal")
    assert "No space left" in (result.error or "")
    assert not ran, "a call ran that was not written down"
    full = False
    assert (await session.run("again")).text == "fine"
    kinds = [line["payload"].get("type") for line in lines(session)]
    assert kinds.count("function_call") == kinds.count("function_call_output") == 1


async def test_a_call_is_on_the_disk_before_it_may_change_anything(
    agent: Make, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    happened: list[str] = []
    session: Conversation

    @tool
    def effect() -> str:
        """Change something."""
        happened.append("ran")
        return "ok"

    def synced(file: int) -> None:
        if file == session.journal._file:
            last = lines(session)[-1]["payload"]
            happened.append(f"synced {last.get('type')}")

    session = agent([[Call("echo", {"text": "a"})], [Call("effect")]], tools=[echo, effect],
                    on_ask="allow")  # fmt: skip
    monkeypatch.setattr(os, "fdatasync", synced)
    await session.run("go")
    at = happened.index("ran")
    assert happened[at - 1] in ("synced function_call", "synced token_count")
    assert at == 1, "readers do not wait for the disk"


async def test_sessions_are_found_listed_and_copied(
    agent: Make, toolrest_home: Path, workspace: Path
) -> None:
    home = str(toolrest_home)
    session = agent(["ok"])
    await session.run("please   fix\nit")
    await session.aclose()
    (row,) = summaries(home, str(workspace))
    assert (row.title, row.stored.thread_id) == ("please fix it", session.id)
    assert find_session(home, session.id[:8]).path == session.journal.path
    assert latest_session(home, str(workspace)).path == session.journal.path
    with pytest.raises(ConfigError, match="there is no session"):
        find_session(home, "00000000-nope")
    with pytest.raises(ConfigError, match="no earlier session"):
        latest_session(home, "/elsewhere")
    copy = fork(home, row.stored.path)
    copied = read_rollout(find_session(home, copy).path)
    assert copied.meta["forked_from_id"] == session.id
    assert copied.items == session.history


@pytest.mark.parametrize("how", ["pipe", "link", "folder", "words", "ref", "plain"])
def test_what_a_folder_says_of_its_commit_is_a_commit(how: str, tmp_path: Path) -> None:
    head = tmp_path / ".git" / "HEAD"
    head.parent.mkdir()
    secret = tmp_path / "token"
    secret.write_text("hvs.very-secret-token")
    commit = "0123456789" * 4
    if how == "pipe":
        os.mkfifo(head)
    elif how == "link":
        head.symlink_to(secret)
    elif how == "folder":
        head.mkdir()
    elif how == "words":
        head.write_text(secret.read_text())
    elif how == "ref":
        head.write_text("ref: refs/heads/main\n")
        (head.parent / "refs" / "heads").mkdir(parents=True)
        (head.parent / "refs" / "heads" / "main").symlink_to(secret)
    else:
        head.write_text(f"{commit}\n")
    expected = {"ref": {"branch": "main"}, "plain": {"commit_hash": commit}}.get(how)
    assert git_facts(str(tmp_path)) == expected
