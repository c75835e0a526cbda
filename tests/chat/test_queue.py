"""What waits for a turn: messages and commands in their order, and none of them is lost."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.chat.test_chat import ENTER, ESC, says
from tests.screen import Screen

from toolrest.testing import Call

pytestmark = pytest.mark.needs("sandbox")
UP = "\x1b[A"
HOLDS = Call("exec_command", {"cmd": "echo held; cat gate", "login": False})


def working(chat: Any, desk: Any, *script: Any) -> Screen:
    """A chat whose turn waits for `gate`."""
    os.mkfifo(desk.workspace / "gate")
    screen: Screen = chat([HOLDS, *script])
    says(screen, "go")
    screen.shows("  held")
    return screen


def let_go(desk: Any) -> None:
    with open(desk.workspace / "gate", "w") as gate:
        gate.write("on\n")


def queues(screen: Screen, text: str) -> None:
    """Write and queue a text; the blank behind it ends the list of completions."""
    screen.types(f"{text} ")
    screen.shows(f"› {text}")
    screen.types("\t")
    screen.shows(f"queued: {text}")


@pytest.mark.slow
def test_a_queued_command_waits_for_the_turn(chat: Any, desk: Any) -> None:
    """Failed before: Tab on /new ended the turn at once."""
    screen = working(chat, desk, "first answer", "second answer")
    queues(screen, "/model gpt-6")
    queues(screen, "and then?")
    assert "first answer" not in screen.text
    let_go(desk)
    screen.sees("first answer", "Model: gpt-6", "> and then?", "second answer")
    found = [screen.text.index(text) for text in ("first answer", "Model: gpt-6", "> and then")]
    assert found == sorted(found)
    assert "stopped after" not in screen.text


@pytest.mark.slow
def test_a_queued_message_is_taken_back_and_the_last_comes_first(chat: Any, desk: Any) -> None:
    screen = working(chat, desk, "first answer", "second answer")
    queues(screen, "one thing")
    queues(screen, "another thing")
    screen.types(UP)
    screen.shows("› another thing")
    screen.lacks("queued: another thing")
    screen.shows("queued: one thing")
    screen.types("\x15")
    screen.lacks("› another")
    let_go(desk)
    screen.sees("first answer", "> one thing", "second answer")
    assert "> another" not in screen.text


@pytest.mark.slow
def test_a_setting_that_is_wrong_leaves_the_turn_alone(chat: Any, desk: Any) -> None:
    """Failed before: the turn was interrupted and the session closed before it was checked."""
    screen = working(chat, desk, "first answer")
    says(screen, "/approvals sometimes")
    screen.sees("✗ ", "approval_policy")
    let_go(desk)
    screen.sees("first answer", "Worked for")
    assert "stopped after" not in screen.text
    assert "Approvals:" not in screen.text


@pytest.mark.slow
def test_what_is_queued_goes_on_in_a_copy(chat: Any, desk: Any) -> None:
    """Failed before: the way back to an earlier message dropped it silently."""
    screen = working(chat, desk, "first answer", "second answer")
    queues(screen, "one thing")
    says(screen, "/fork")
    screen.sees("stopped after", "Copy of session")
    screen.shows("queued: one thing")
    says(screen, "hello")
    screen.sees("first answer", "> one thing", "second answer")


@pytest.mark.slow
def test_another_session_says_what_was_not_sent(chat: Any, desk: Any) -> None:
    screen = working(chat, desk)
    queues(screen, "one thing")
    screen.types("/new" + ENTER)
    screen.sees("New session")
    screen.sees("not sent: one thing")
    screen.lacks("queued: one thing")


@pytest.mark.slow
def test_esc_leaves_what_is_queued_in_the_line(chat: Any, desk: Any) -> None:
    screen = working(chat, desk, "second answer")
    queues(screen, "one thing")
    queues(screen, "another thing")
    screen.types(ESC)
    screen.sees("stopped after")
    screen.shows("› one thing", "  another thing", "Enter sends, Esc drops")
    screen.types(ESC)
    screen.lacks("another thing")
    screen.shows("Ask anything")
    screen.lacks("queued:")


@pytest.mark.slow
def test_what_esc_left_in_the_line_is_sent_with_enter(chat: Any, desk: Any) -> None:
    screen = working(chat, desk, "second answer")
    queues(screen, "one thing")
    screen.types(ESC)
    screen.shows("› one thing", "Enter sends, Esc drops")
    screen.types(ENTER)
    screen.sees("> one thing", "second answer", "Worked for")
