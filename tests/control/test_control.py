"""A session's control socket: answers, messages and live text, for this user's processes alone."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Desk
from tests.control.conftest import QUESTION, WRITE, Controlled, Open, finished, socket_of

from toolrest.agent.conversation.events import AgentMessageDelta
from toolrest.control import server as control_server
from toolrest.control.client import NoSession, ask_session, watch_session
from toolrest.control.controls import ControlError, TurnControls
from toolrest.control.server import ControlServer
from toolrest.control.sockets import FOLDER, _status
from toolrest.gate.approval.request import Review
from toolrest.gate.call.turn import Turn
from toolrest.testing import Call, Say


async def test_an_approval_from_elsewhere_closes_the_question_and_says_so(
    opened: Open,
    workspace: Path,
) -> None:
    one = opened([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    assert (request["kind"], request["tool"]) == ("approval", "apply_patch")
    assert "made.txt" in "\n".join(request["lines"])
    assert request["workspace"] == str(workspace)
    assert (await one.answer(request, approve=True))["answer"] == "approved"
    assert (await finished(turn)).text == "done"
    assert one.front.closed
    assert (workspace / "made.txt").exists()
    said = [event for event in one.events if event.type == "answered_elsewhere"]
    assert [event.answer for event in said] == ["approved"]
    assert (await one.ask("waiting"))["waiting"] == []


async def test_a_denial_with_words_reaches_the_model(opened: Open, workspace: Path) -> None:
    one = opened([WRITE, lambda asked: "told" if "not in here" in str(asked.items) else "?"])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    await one.answer(request, approve=False, note="not in here")
    assert (await finished(turn)).text == "told"
    assert not (workspace / "made.txt").exists()


async def test_the_first_answer_counts_wherever_it_was_given(opened: Open) -> None:
    one = opened([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    one.front.answer.set_result(Review("denied"))
    with pytest.raises(ControlError, match="answered already"):
        await one.answer(request, approve=True)
    await finished(turn)
    assert not [event for event in one.events if event.type == "answered_elsewhere"]


async def test_of_two_answers_from_elsewhere_one_counts(opened: Open, workspace: Path) -> None:
    one = opened([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    answers = await asyncio.gather(
        one.answer(request, approve=True), one.answer(request, approve=False),
        return_exceptions=True,
    )  # fmt: skip
    await finished(turn)
    assert sum(isinstance(answer, ControlError) for answer in answers) == 1
    won = next(answer for answer in answers if not isinstance(answer, BaseException))
    assert (workspace / "made.txt").exists() == (won["answer"] == "approved")


async def test_an_approval_for_the_session_covers_the_next_call(
    opened: Open,
    workspace: Path,
) -> None:
    change = "*** Begin Patch\n*** Update File: made.txt\n@@\n-x\n+y\n*** End Patch"
    second = Call("apply_patch", {"input": change})
    one = opened([WRITE, second, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    assert "session" in [choice["scope"] for choice in request["choices"]]
    await one.answer(request, approve=True, scope="session")
    await finished(turn)
    assert (workspace / "made.txt").read_text() == "y\n"


async def test_what_has_only_just_appeared_is_not_approved(
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    workspace: Path,
) -> None:
    one = opened([WRITE, "done"])
    monkeypatch.setattr(control_server, "INERT", 1e9)
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    with pytest.raises(ControlError, match="just appeared"):
        await one.answer(request, approve=True)
    await one.answer(request, approve=False)
    await finished(turn)
    assert not (workspace / "made.txt").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"pin": "0" * 64, "approve": True},
        {"request": "0", "approve": True},
        {"approve": True, "scope": "everything"},
        {"approve": True, "scope": ["once"]},
    ],
)
async def test_an_answer_to_something_else_approves_nothing(
    opened: Open,
    wrong: dict[str, Any],
    workspace: Path,
) -> None:
    one = opened([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    fields = {"request": request["id"], "pin": request["pin"], **wrong}
    with pytest.raises(ControlError):
        await one.ask("answer", **fields)
    one.front.answer.set_result(Review("denied"))
    await finished(turn)
    assert not (workspace / "made.txt").exists()


async def test_a_models_question_is_answered(opened: Open) -> None:
    def reply(asked: Any) -> str:
        return "blue it is" if "blue" in str(asked.items[-1]) else "?"

    one = opened([Call("request_user_input", {"questions": [QUESTION]}), reply])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    assert request["kind"] == "question"
    assert request["questions"][0]["question"] == "Which one?"
    wrong: list[Any] = [{}, {"colour": []}, {"colour": [" "]}, {"colour": "blue"}, []]
    for answers in wrong:
        with pytest.raises(ControlError):
            await one.answer(request, answers=answers)
    await one.answer(request, answers={"colour": ["blue"]})
    assert (await finished(turn)).text == "blue it is"
    assert one.front.closed


async def test_an_interrupt_ends_the_turn_and_the_question(opened: Open) -> None:
    one = opened([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    await one.waiting()
    await one.ask("interrupt")
    assert (await finished(turn)).status == "interrupted"
    assert one.front.closed
    assert (await one.ask("waiting"))["waiting"] == []


async def test_a_message_goes_to_the_turn_under_way(opened: Open) -> None:
    def reply(asked: Any) -> str:
        return "in red" if "paint it red" in str(asked.items) else "?"

    one = opened([WRITE, reply])
    with pytest.raises(ControlError, match="under way"):
        await one.ask("message", text="too early")
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    await one.ask("message", text="paint it red")
    for text in ("", "  ", 5, "x" * 200_001):
        with pytest.raises(ControlError):
            await one.ask("message", text=text)
    await one.answer(request, approve=True)
    assert (await finished(turn)).text == "in red"


async def test_undo_takes_back_the_last_turn(opened: Open, workspace: Path) -> None:
    one = opened([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    request = await one.waiting()
    with pytest.raises(ControlError, match="under way"):
        await one.ask("undo", turn=1)
    await one.answer(request, approve=True)
    await finished(turn)
    assert "made.txt" in "\n".join((await one.ask("undo", turn=await one.undoable()))["lines"])
    assert not (workspace / "made.txt").exists()


# Live text


async def collected(messages: AsyncIterator[Any], until: str) -> list[Any]:
    found = []
    async for message in messages:
        found.append(message)
        if message["event"] == until:
            break
    return found


async def test_text_comes_as_the_model_writes_it(opened: Open) -> None:
    one = opened([Say("one two three four", chunks=6)])
    stream = watch_session(one.home, one.session.id)
    assert (await anext(stream))["busy"] is False
    turn = asyncio.ensure_future(one.session.run("go"))
    seen = await asyncio.wait_for(collected(stream, "text_end"), 60)
    text = "".join(message["text"] for message in seen if message["event"] == "text")
    assert text == "one two three four"
    await finished(turn)
    await stream.aclose()


async def test_a_late_viewer_gets_what_is_half_written_once(opened: Open) -> None:
    one = opened(["done"])
    one.session.emit(AgentMessageDelta(delta="half a "))
    early = watch_session(one.home, one.session.id)
    await anext(early)
    assert (await anext(early)) == {"event": "text", "text": "half a "}
    late = watch_session(one.home, one.session.id)
    await anext(late)
    one.session.emit(AgentMessageDelta(delta="sentence"))
    parts = ""
    while parts != "half a sentence":
        parts += (await asyncio.wait_for(anext(late), 60))["text"]
        assert "half a sentence".startswith(parts)
    await early.aclose()
    await late.aclose()


@pytest.mark.needs("sandbox")
async def test_a_commands_output_comes_while_it_runs(opened: Open) -> None:
    line = r"printf '\033[31mfirst\033[0m\n'; cat go"
    one = opened(
        [Call("shell_command", {"command": line, "login": False}), "done"],
        approval_policy="on-request",
    )
    cwd = one.session.rest.session.files.cwd
    os.mkfifo(f"{cwd}/go")
    stream = watch_session(one.home, one.session.id)
    turn = asyncio.ensure_future(one.session.run("go"))
    seen = await asyncio.wait_for(collected(stream, "output"), 60)
    assert seen[-1]["text"] == "first\n"
    assert not turn.done()
    await asyncio.to_thread(Path(cwd, "go").write_text, "over\n")
    assert (await finished(turn)).text == "done"
    await stream.aclose()


# Who may connect


async def test_the_socket_is_private_and_goes_with_the_session(opened: Open) -> None:
    one = opened(["done"])
    folder = Path(one.home) / FOLDER
    path = folder / f"{one.session.id}.sock"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (await one.ask("state"))["session"] == one.session.id
    assert one.server is not None
    await one.session.aclose()
    await asyncio.wait({one.server._following})
    assert list(folder.iterdir()) == []
    with pytest.raises(NoSession):
        await one.ask("state")


async def test_a_session_that_is_opened_again_keeps_its_new_socket(opened: Open) -> None:
    one = opened(["done"])
    assert one.server is not None
    again = ControlServer(one.session, TurnControls(one.session))
    one.server.close()
    assert (await one.ask("state"))["version"] == 3
    again.close()


async def test_without_the_setting_there_is_no_socket(opened: Open) -> None:
    one = opened(["done"], web_ui__control=False)
    assert one.server is None
    assert not (Path(one.home) / FOLDER).exists()


async def test_with_full_access_there_is_no_socket_and_who_asks_is_told_why(opened: Open) -> None:
    one = opened(["done"], sandbox_mode="danger-full-access")
    assert one.server is None
    assert not (Path(one.home) / FOLDER).exists()
    with pytest.raises(NoSession, match="with full access it has no control socket"):
        await one.ask("state")


CONNECT = """
import ctypes, os, socket, sys
if "confined" in sys.argv:
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
os.chdir(sys.argv[1])
talk = socket.socket(socket.AF_UNIX)
talk.connect(sys.argv[2])
talk.sendall(b'{"op": "state"}\\n')
lines = talk.makefile("rb")
print("GOT", lines.readline(), lines.readline())
"""


@pytest.mark.parametrize("confined", [False, True])
async def test_a_more_confined_process_of_the_user_is_refused(opened: Open, confined: bool) -> None:
    one = opened(["done"])
    folder, name = f"{one.home}/{FOLDER}", f"{one.session.id}.sock"
    argv = [sys.executable, "-c", CONNECT, folder, name, *(["confined"] if confined else [])]
    ran = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)
    same = not confined or _status(os.getpid())["NoNewPrivs"] == "1"
    assert ("version" in ran.stdout) == same, ran


@pytest.mark.needs("sandbox")
async def test_a_sandboxed_command_cannot_connect(opened: Open, workspace: Path) -> None:
    one = opened([], approval_policy="on-request")
    folder, name = f"{one.home}/{FOLDER}", f"{one.session.id}.sock"
    # A command line that names the home is denied before it runs; a script is not read.
    script = CONNECT.replace("sys.argv[1]", repr(folder)).replace("sys.argv[2]", repr(name))
    (workspace / "connect.py").write_text(script)
    argv = [sys.executable, str(workspace / "connect.py")]
    free = await asyncio.to_thread(subprocess.run, argv, capture_output=True, check=False)
    assert b"GOT" in free.stdout
    output = await one.session.rest.call("exec_command", {"cmd": "python3 connect.py"})
    assert "Error" in output.text
    assert "GOT" not in output.text


@pytest.mark.parametrize(
    "line", [b"\xff\n", b"[]\n", b"{\n", b'{"op": "exit"}\n', b'{"op": ["state"]}\n', b"null\n"]
)
async def test_nonsense_is_refused_and_the_session_goes_on(opened: Open, line: bytes) -> None:
    one = opened(["done"])
    reader, writer = await _connected(one)
    assert "hello" in json.loads(await reader.readline())
    writer.write(line)
    assert "error" in json.loads(await reader.readline())
    writer.write(b"x" * (2 << 20))
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert (await one.ask("state"))["busy"] is False


async def _connected(one: Controlled) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(sock=socket_of(one))


@pytest.mark.parametrize("name", ["../config", "x" * 200, "", "a/b", "."])
async def test_only_ids_are_names_of_sessions(opened: Open, name: str) -> None:
    one = opened(["done"])
    with pytest.raises(NoSession):
        await ask_session(one.home, name, "state")


async def test_a_message_in_the_last_moment_is_read_or_refused(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened(["one", lambda asked: "read" if "late" in str(asked.items) else "?"])
    refused: list[str] = []

    class Hooks:
        async def session_start(self) -> list[str]:
            return []

        async def stop(self, _: str) -> str:
            if not refused and "late" not in str(one.session.history):
                await one.ask("message", text="late")
            return ""

    async def leave(turn: Turn, *error: Any) -> None:
        try:
            await one.ask("message", text="too late")
        except ControlError as reason:
            refused.append(str(reason))
        await left(turn, *error)

    left = Turn.__aexit__
    monkeypatch.setattr(Turn, "__aexit__", leave)
    one.session.hooks = Hooks()
    assert (await finished(one.session.run("go"))).text == "read"
    assert len(refused) == 1
    assert not one.session.has_pending


def test_a_hosted_session_with_full_access_is_refused_with_the_reason(desk: Desk) -> None:
    done = desk.run("host", "-s", "danger-full-access")
    assert done.code == 2
    assert "with full access a session has no control socket" in done.err
