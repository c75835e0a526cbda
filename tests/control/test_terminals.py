"""Sessions at a real terminal, answered and steered from elsewhere over their sockets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.control.conftest import WRITE
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.control.client import ask_session
from toolrest.control.controls import ControlError
from toolrest.control.sockets import sessions


class Elsewhere:
    """What another process of the user asks of the one session of a home."""

    def __init__(self, home: Any) -> None:
        self._home = str(home)

    def ask(self, op: str, **fields: Any) -> Any:
        (session,) = sessions(self._home)
        return asyncio.run(ask_session(self._home, session, op, **fields))

    def answer(self, screen: Screen, **fields: Any) -> Any:
        """Answer what waits; it is inert for half a second."""
        (row,) = self.ask("waiting")["waiting"]
        given: list[Any] = []

        def answered() -> bool:
            with suppress(ControlError):
                given.append(self.ask("answer", request=row["id"], pin=row["pin"], **fields))
            return bool(given)

        screen.until(answered)
        return given[0]


@pytest.mark.slow
def test_the_chats_question_closes_and_says_where_it_was_answered(chat: Any, desk: Any) -> None:
    screen = chat([WRITE, "that was it"], "chat", "-a", "untrusted")
    screen.types("go\r")
    screen.shows("1. Yes", "made.txt")
    Elsewhere(desk.home).answer(screen, approve=True)
    screen.sees("approved from the browser", "that was it")
    screen.lacks("1. Yes")
    assert (desk.workspace / "made.txt").exists()


@pytest.mark.long
def test_the_chat_takes_messages_as_text(chat: Any, desk: Any) -> None:
    screen = chat(["first", "second", "third"])
    elsewhere = Elsewhere(desk.home)
    for text, reply in (("hello", "first"), ("!touch ran", "second"), ("/quit", "third")):
        elsewhere.ask("message", text=text, queued=True)
        screen.sees(reply, text)
        screen.until(lambda: not elsewhere.ask("state")["busy"])
    assert not (desk.workspace / "ran").exists()


@pytest.mark.long
def test_execs_question_closes_too(desk: Any, serve: Any) -> None:
    serve([WRITE, "that was it"])
    argv = [TOOLREST, "exec", "-a", "untrusted", "go"]
    with Screen(argv, cwd=desk.workspace) as screen:
        screen.sees("Answer:")
        Elsewhere(desk.home).answer(screen, approve=False, note="not now")
        assert screen.ends() == 0
        assert "denied from the browser: not now" in screen.text
        assert "that was it" in screen.text
    assert not (desk.workspace / "made.txt").exists()


@pytest.mark.long
def test_an_exec_without_an_approver_has_no_socket(desk: Any, serve: Any) -> None:
    serve(["done"])
    assert desk.run("exec", "go").code == 0
    assert not (desk.home / "control").exists()
