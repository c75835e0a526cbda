"""A weak sandbox in the chat: said once where a session starts, then two words in the status line.

Every session here really is confined by Landlock alone: it has the rights of a plain container.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.chat.test_approvals import answers, denies
from tests.forked import TOOLREST
from tests.machine import REPOSITORY

from toolrest.testing import Call

CONTAINER = (sys.executable, str(REPOSITORY / "tests/plain_container.py"), "--", TOOLREST)
CHAT = (*CONTAINER, "chat", "-s", "workspace-write")
SENTENCE = (
    "Weak sandbox here: git hooks and settings are watched, not locked; .env can be read. "
    "`toolrest doctor` says how to get the full one."
)
ENTER, CTRL_D = "\r", "\x04"
HOOK = {"cmd": "echo x > .git/hooks/pre-commit", "login": False}

pytestmark = [pytest.mark.needs("landlock"), pytest.mark.slow]


def words(text: str) -> str:
    """The text of a screen, as if no row had ended."""
    return " ".join(text.split())


def test_it_is_said_once_before_the_first_command(chat: Any, desk: Any) -> None:
    script = [Call("exec_command", {"cmd": "echo ran", "login": False}), "the end"]
    screen = chat(script, program=CHAT)
    screen.shows("workspace-write · weak sandbox · gpt-5.5", "says how to get the full one.")
    at = next(n for n, row in enumerate(screen.rows) if row.startswith("  Weak sandbox"))
    assert words("\n".join(screen.rows[at : at + 2])) == SENTENCE, "two rows"
    screen.types("go" + ENTER)
    screen.sees("the end", "Worked for")
    assert screen.text.index("Weak sandbox") < screen.text.index("echo ran")
    screen.types("/model gpt-5.5-mini" + ENTER)
    screen.shows("workspace-write · weak sandbox · gpt-5.5-mini")
    assert words(screen.text).count("Weak sandbox here") == 1, "the session goes on"
    screen.types("/status" + ENTER)
    screen.sees("approvals  on-request")
    assert words(screen.text).count(SENTENCE) == 2, "it answers a question"
    screen.types(CTRL_D)
    assert screen.ends() == 0
    again = chat.again(program=(*CONTAINER, "resume", "--last", "-s", "workspace-write"))
    again.shows("weak sandbox ·")
    assert "Weak sandbox here" not in again.text


def test_accepted_it_is_two_words(chat: Any) -> None:
    settings = "[sandbox]\naccept_weak = true\n"
    screen = chat([], program=CHAT, settings=settings)
    screen.shows("workspace-write · weak sandbox · gpt-5.5")
    screen.types("/status" + ENTER)
    screen.sees("workspace-write, weak sandbox", "approvals  on-request")
    assert "Weak sandbox here" not in screen.text


def test_a_read_only_session_is_not_weak(chat: Any) -> None:
    script = [Call("exec_command", {"cmd": "echo ran", "login": False}), "the end"]
    screen = chat(script, program=(*CONTAINER, "chat", "-s", "read-only"))
    screen.types("go" + ENTER)
    screen.sees("the end", "Worked for")
    assert "eak sandbox" not in screen.text


def test_a_named_write_is_asked_about_once(chat: Any, desk: Any) -> None:
    hooks = desk.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    script = [Call("exec_command", HOOK), Call("exec_command", HOOK), "the end"]
    screen = chat(script, program=CHAT)
    screen.types("go" + ENTER)
    screen.shows("Change .git/hooks/pre-commit?", "not locked in this weak sandbox", "1. Yes")
    assert "session" not in screen.now, "not for the session"
    answers(screen, "y")
    screen.until(lambda: (hooks / "pre-commit").exists(), "approved")
    (hooks / "pre-commit").unlink()
    screen.shows("1. Yes")
    denies(screen)
    screen.sees("the end", "Worked for")
    assert not (hooks / "pre-commit").exists(), "an approval covers one command"
