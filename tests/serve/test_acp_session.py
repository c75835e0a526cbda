"""Sessions in an editor: permissions with diffs, modes, replay, lists, commands, usage."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.helpers import text_block
from tests.serve.editor import Connect, connector

from toolrest.control.client import ask_session
from toolrest.testing import Call, Say, Think
from toolrest.testing.server import ScriptedServer

PATCH = "*** Begin Patch\n*** Update File: hello.txt\n@@\n-hello\n+hello \u202eworld\n*** End Patch"
EASY = 'approval_policy = "on-request"'


@pytest.fixture(params=["socket", pytest.param("stdio", marks=pytest.mark.long)])
def connect(request: pytest.FixtureRequest, workspace: Path, toolrest_home: Path) -> Connect:
    return connector(workspace, toolrest_home, stdio=request.param == "stdio")


async def opened(agent: Any, workspace: Path) -> Any:
    return await agent.new_session(cwd=str(workspace), mcp_servers=[])


async def said(agent: Any, session: str, text: str) -> Any:
    return await agent.prompt(session_id=session, prompt=[text_block(text)])


async def test_a_patch_is_asked_about_with_its_diff(connect: Connect, workspace: Path) -> None:
    script: list[Any] = [Call("apply_patch", {"input": PATCH}), Say("ok")]
    async with (
        ScriptedServer(script) as server,
        connect(server, "-a", "untrusted") as (agent, editor),
    ):
        session = await opened(agent, workspace)
        await said(agent, session.session_id, "go")
    ((shown, options),) = editor.asked
    assert (shown.title, shown.kind) == ("Edit hello.txt", "edit")
    (diff,) = [part for part in shown.content if part.type == "diff"]
    assert diff.path == str(workspace / "hello.txt")
    # A character that reorders a line is spelled out: the diff is what a person approves.
    assert (diff.old_text, diff.new_text) == ("hello\n", "hello ⟨U+202E⟩world\n")
    assert "Change hello.txt?" in shown.content[0].content.text
    assert {option.kind for option in options} >= {"allow_once", "allow_always", "reject_once"}
    ended = editor.of("tool_call_update")[-1]
    assert ended.status == "completed"
    patched = [part for update in editor.of("tool_call_update") for part in update.content or ()]
    assert patched[0].type == "diff"
    assert (workspace / "hello.txt").read_text() == "hello \u202eworld\n"


async def test_several_files_in_one_patch(connect: Connect, workspace: Path) -> None:
    (workspace / "crlf.txt").write_bytes(b"one\rtwo\rthree")
    patch = (
        "*** Begin Patch\n*** Add File: new.txt\n+fresh\n*** Delete File: hello.txt\n*** End Patch"
    )
    edit = {"file_path": "crlf.txt", "old_string": "two", "new_string": "2"}
    script: list[Any] = [
        Call("apply_patch", {"input": patch}),
        Call("apply_patch", edit),
        Say("ok"),
    ]
    async with (
        ScriptedServer(script) as server,
        connect(server, "-a", "untrusted") as (agent, editor),
    ):
        session = await opened(agent, workspace)
        await said(agent, session.session_id, "go")
    (first, _), (second, _) = editor.asked
    assert first.title == "Edit hello.txt and 1 more file"
    texts = {(part.old_text, part.new_text) for part in first.content if part.type == "diff"}
    assert texts == {(None, "fresh\n"), ("hello\n", "")}
    # Lines that end in CR alone: none of the new text is taken for the old one.
    (diff,) = [part for part in second.content if part.type == "diff"]
    assert "2" in diff.new_text
    assert "two" in diff.old_text
    assert "2" not in diff.old_text


@pytest.mark.needs("sandbox")
async def test_the_title_of_a_command_and_what_an_approval_covers(
    connect: Connect, workspace: Path
) -> None:
    script: list[Any] = [Call("exec_command", {"cmd": "touch made"}), Say("ok")]
    async with (
        ScriptedServer(script) as server,
        connect(server, "-a", "untrusted", answer="denied") as (agent, editor),
    ):
        session = await opened(agent, workspace)
        await said(agent, session.session_id, "go")
    ((shown, options),) = editor.asked
    assert (shown.title, shown.kind) == ("touch made", "execute")
    assert "if the sandbox blocks it, it runs once more outside" in options[0].name


@pytest.mark.needs("sandbox")
async def test_modes_narrow_and_widen_back(connect: Connect, workspace: Path) -> None:
    commands = ["touch made-1", "ls", "touch made-2", "touch made-3"]
    script: list[Any] = []
    for command in commands:
        script += [Call("exec_command", {"cmd": command}), Say("ok")]
    async with (
        ScriptedServer(script) as server,
        connect(server, settings=EASY, answer="denied") as (agent, editor),
    ):
        session = await opened(agent, workspace)
        id_ = session.session_id
        assert session.modes.current_mode_id == "auto"
        offered = [mode.id for mode in session.modes.available_modes]
        assert offered == ["read-only", "ask", "auto"]
        await agent.set_session_mode(session_id=id_, mode_id="read-only")
        assert editor.of("current_mode_update")[-1].current_mode_id == "read-only"
        await said(agent, id_, "go")
        await said(agent, id_, "look")
        assert not editor.asked
        statuses = [update.status for update in editor.of("tool_call_update") if update.status]
        assert statuses == ["failed", "completed"]
        refused = editor.of("tool_call_update")[0].content[0].content.text
        assert "read-only mode" in refused
        await agent.set_session_mode(session_id=id_, mode_id="ask")
        await said(agent, id_, "go")
        assert len(editor.asked) == 1
        await agent.set_session_mode(session_id=id_, mode_id="auto")
        await said(agent, id_, "go")
        assert len(editor.asked) == 1
    assert sorted(path.name for path in workspace.glob("made*")) == ["made-3"]


async def test_the_mode_stays_when_the_session_is_loaded(connect: Connect, workspace: Path) -> None:
    async with ScriptedServer([Call("apply_patch", {"input": PATCH}), Say("ok")]) as server:
        async with connect(server, settings=EASY) as (agent, _):
            session = (await opened(agent, workspace)).session_id
            for mode in ("read-only", "auto", "read-only"):
                await agent.set_session_mode(session_id=session, mode_id=mode)
        async with connect(server, settings=EASY) as (agent, editor):
            loaded = await agent.load_session(
                cwd=str(workspace), session_id=session, mcp_servers=[]
            )
            assert loaded.modes.current_mode_id == "read-only"
            await said(agent, session, "go")
    assert not editor.asked
    assert (workspace / "hello.txt").read_text() == "hello\n"


async def test_ask_mode_remembers_what_was_granted(connect: Connect, workspace: Path) -> None:
    write = {"file_path": "a.txt", "content": "a"}
    again = {"file_path": "a.txt", "content": "b"}
    script: list[Any] = [Call("write_file", write), Call("write_file", again), Say("ok")]
    async with (
        ScriptedServer(script) as server,
        connect(server, settings=EASY, answer="approved_for_session") as (agent, editor),
    ):
        session = (await opened(agent, workspace)).session_id
        await agent.set_session_mode(session_id=session, mode_id="ask")
        await said(agent, session, "go")
    assert len(editor.asked) == 1
    assert (workspace / "a.txt").read_text() == "b"


async def test_read_only_mode_has_the_last_word(connect: Connect, workspace: Path) -> None:
    """Neither the user's own `allow` nor an earlier grant lifts it."""
    settings = EASY + '\n[approvals.tools]\nwrite_file = "allow"\n'
    script: list[Any] = []
    for call in (
        Call("write_file", {"file_path": "a.txt", "content": "a"}),
        Call("apply_patch", {"input": PATCH}),
        Call("save_memory", {"text": "something"}),
    ):
        script += [call, Say("ok")]
    async with (
        ScriptedServer(script) as server,
        connect(server, "-c", 'tools.enabled=["*"]', settings=settings) as (agent, editor),
    ):
        session = await opened(agent, workspace)
        await agent.set_session_mode(session_id=session.session_id, mode_id="read-only")
        for _ in range(3):
            await said(agent, session.session_id, "go")
    ended = [update.status for update in editor.of("tool_call_update")]
    assert ended == ["failed"] * 3
    assert not editor.asked
    assert not (workspace / "a.txt").exists()
    assert (workspace / "hello.txt").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        (("-a", "never"), ["read-only", "auto"]),
        (("-a", "untrusted"), ["read-only", "ask"]),
        (("-a", "strict"), ["read-only", "ask"]),
        (("-s", "read-only"), ["read-only", "auto"]),
        (("-c", 'on_ask="allow"'), ["read-only", "auto"]),
    ],
)
async def test_no_mode_allows_more_than_the_settings(
    connect: Connect, workspace: Path, options: tuple[str, ...], offered: list[str]
) -> None:
    async with ScriptedServer([]) as server, connect(server, *options) as (agent, _):
        session = await opened(agent, workspace)
        assert [mode.id for mode in session.modes.available_modes] == offered
        assert session.modes.current_mode_id == offered[-1]
        for mode in {"read-only", "ask", "auto", "danger-full-access"} - set(offered):
            with pytest.raises(RequestError):
                await agent.set_session_mode(session_id=session.session_id, mode_id=mode)


async def test_a_loaded_session_shows_its_calls(connect: Connect, workspace: Path) -> None:
    plan = {"plan": [{"step": "look", "status": "completed"}, {"step": "do", "status": "pending"}]}
    script: list[Any] = [
        [Think("hm"), Call("read_file", {"file_path": "hello.txt"})],
        Call("read_file", {"file_path": "missing.txt"}),
        Call("update_plan", plan),
        Call("apply_patch", {"input": PATCH}),
        Say("done"),
        Say("again"),
    ]
    async with ScriptedServer(script) as server:
        async with connect(server, settings=EASY) as (agent, _):
            session = (await opened(agent, workspace)).session_id
            await said(agent, session, "one")
        async with connect(server, settings=EASY) as (agent, editor):
            loaded = await agent.load_session(
                cwd=str(workspace), session_id=session, mcp_servers=[]
            )
            assert loaded.modes.current_mode_id == "auto"
            kinds = [update.session_update for update in editor.updates]
            first = kinds.index("tool_call")
            assert kinds.index("user_message_chunk") < first < kinds.index("agent_message_chunk")
            titles = [call.title for call in editor.of("tool_call")]
            assert titles[0] == "read_file hello.txt"
            assert titles[3] == "Edit hello.txt"
            ended = {update.tool_call_id: update for update in editor.of("tool_call_update")}
            calls = [ended[call.tool_call_id] for call in editor.of("tool_call")]
            assert [call.status for call in calls] == [
                "completed", "failed", "completed", "completed",
            ]  # fmt: skip
            assert "hello" in calls[0].content[0].content.text
            (diff,) = calls[3].content
            assert (diff.type, diff.old_text) == ("diff", "hello")
            assert [entry.content for entry in editor.of("plan")[-1].entries] == ["look", "do"]
            assert editor.of("tool_call")[0].kind == "read"
            # Loading it once more opens it anew.
            await agent.load_session(cwd=str(workspace), session_id=session, mcp_servers=[])
            await said(agent, session, "two")
            assert editor.said.endswith("again")


async def test_sessions_are_listed(connect: Connect, workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with ScriptedServer([Say("a"), Say("b")]) as server, connect(server) as (agent, editor):
        assert editor.capabilities.session_capabilities.list is not None
        first = (await opened(agent, workspace)).session_id
        await said(agent, first, "fix \x1b[31mthe bug")
        second = (await opened(agent, other)).session_id
        await said(agent, second, "look")
        await opened(agent, workspace)  # never prompted: not listed
        every = await agent.list_sessions()
        assert {row.session_id for row in every.sessions} == {first, second}
        here = (await agent.list_sessions(cwd=str(workspace))).sessions
        assert [(row.session_id, row.cwd) for row in here] == [(first, str(workspace))]
        assert here[0].title == "fix ⟨ESC⟩[31mthe bug"
        assert every.next_cursor is None
        with pytest.raises(RequestError):
            await agent.list_sessions(cursor="nothing")


async def test_a_long_list_comes_in_pages(
    connect: Connect, workspace: Path, toolrest_home: Path
) -> None:
    folder = toolrest_home / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True)
    wanted = set()
    for number in range(120):
        id_ = str(uuid.UUID(int=number))
        wanted.add(id_)
        lines = [
            {"type": "session_meta", "payload": {"id": id_, "cwd": str(workspace)}},
            {
                "type": "response_item",
                "payload": {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": f"task {number}"}],
                },
            },
        ]
        text = "\n".join(map(json.dumps, lines))
        (folder / f"rollout-2026-01-01T00-00-00-{id_}.jsonl").write_text(text)
    seen: list[str] = []
    async with ScriptedServer([]) as server, connect(server) as (agent, _):
        cursor = None
        while True:
            page = await agent.list_sessions(cursor=cursor)
            seen += [row.session_id for row in page.sessions]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert len(seen) == 120
    assert set(seen) == wanted


async def test_only_the_exact_id_is_loaded(
    connect: Connect, workspace: Path, toolrest_home: Path
) -> None:
    async with ScriptedServer([Say("a")]) as server, connect(server) as (agent, _):
        session = (await opened(agent, workspace)).session_id
        await said(agent, session, "one")
        await agent.close_session(session_id=session)
        planted = workspace / f"rollout-2026-01-01T00-00-00-{uuid.uuid4()}.jsonl"
        planted.write_text(json.dumps({"type": "session_meta", "payload": {"id": "planted"}}))
        for wanted in (
            session[:8],
            "",
            "*",
            "../" + session,
            str(planted),
            planted.stem,
            "planted",
        ):
            with pytest.raises(RequestError):
                await agent.load_session(cwd=str(workspace), session_id=wanted, mcp_servers=[])
        with pytest.raises(RequestError):
            await agent.load_session(
                cwd=str(workspace),
                session_id=session,
                mcp_servers=[],
                additional_directories=["../elsewhere"],
            )
        await agent.resume_session(cwd=str(workspace), session_id=session, mcp_servers=[])


async def test_slash_commands(connect: Connect, workspace: Path, toolrest_home: Path) -> None:
    prompts = toolrest_home / "prompts"
    prompts.mkdir(mode=0o700)
    (prompts / "greet.md").write_text("Say hello to $ARGUMENTS.")
    script: list[Any] = [Call("apply_patch", {"input": PATCH}), Say("ok"), Say("hi"), Say("path")]
    script.append(Say("the summary"))
    async with (
        ScriptedServer(script) as server,
        connect(server, settings=EASY) as (agent, editor),
    ):
        session = (await opened(agent, workspace)).session_id
        update = await editor.wait_for("available_commands_update")
        names = [command.name for command in update.available_commands]
        assert set(names) >= {"status", "undo", "init", "tools", "greet"}
        await said(agent, session, "go")
        assert (workspace / "hello.txt").read_text() != "hello\n"
        asked = len(server.requests)
        done = await said(agent, session, "/undo")
        assert done.stop_reason == "end_turn"
        assert (workspace / "hello.txt").read_text() == "hello\n"
        assert "hello.txt" in editor.said
        await said(agent, session, "/status")
        assert session in editor.said
        assert len(server.requests) == asked  # the model has no part in these
        await said(agent, session, "/greet the team")
        assert "Say hello to the team." in json.dumps(server.requests[-1].body)
        await said(agent, session, "/etc/hosts is a file")
        assert "/etc/hosts is a file" in json.dumps(server.requests[-1].body)
        await said(agent, session, "/compact")
        assert "summarised: the context is now" in editor.said


async def test_usage_is_told(connect: Connect, workspace: Path) -> None:
    prices = "[model_prices.scripted]\ninput = 2.0\noutput = 8.0\n"
    settings = f"{EASY}\nmodel_context_window = 50000\n{prices}"
    async with (
        ScriptedServer([Say("hi")]) as server,
        connect(server, settings=settings) as (agent, editor),
    ):
        session = (await opened(agent, workspace)).session_id
        done = await said(agent, session, "go")
    assert editor.of("usage_update")[-1].size == 50000
    assert editor.of("usage_update")[-1].cost.amount > 0
    assert editor.of("usage_update")[-1].used == done.usage.total_tokens > 0


async def test_a_request_is_answered_in_the_browser_while_the_editor_shows_it(
    connect: Connect, workspace: Path, toolrest_home: Path
) -> None:
    patch = "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch"
    script: list[Any] = [Call("apply_patch", {"input": patch}), Say("ok")]
    async with (
        ScriptedServer(script) as server,
        connect(server, "-a", "untrusted") as (agent, editor),
    ):
        editor.may_answer.clear()
        session = await agent.new_session(cwd=str(workspace), mcp_servers=[])
        prompt = [text_block("go")]
        turn = asyncio.ensure_future(agent.prompt(session_id=session.session_id, prompt=prompt))
        await asyncio.wait_for(editor.asking.wait(), 60)
        home = str(toolrest_home)
        (row,) = (await ask_session(home, session.session_id, "waiting"))["waiting"]
        which = {"request": row["id"], "pin": row["pin"]}
        await ask_session(home, session.session_id, "answer", **which, approve=False, note="no")
        assert (await asyncio.wait_for(turn, 60)).stop_reason == "end_turn"
        editor.may_answer.set()
        again = await agent.new_session(cwd=str(workspace), mcp_servers=[])
        assert again.session_id != session.session_id
    assert not (workspace / "made").exists()
