"""Approvals in the chat: one key that was meant as an answer, and nothing else, approves."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.patience import hurry, patient
from tests.screen import Screen

from toolrest.chat.questions import ALONE, QUIET
from toolrest.testing import Call

pytestmark = pytest.mark.needs("sandbox")


def outside(cmd: str = "echo was here > ../outside") -> Call:
    arguments = {
        "cmd": cmd,
        "login": False,
        "sandbox_permissions": "require_escalated",
        "justification": "May I?",
    }
    return Call("exec_command", arguments)


def ran(desk: Any) -> bool:
    return bool((desk.workspace.parent / "outside").exists())


def asked(screen: Screen) -> None:
    screen.types("go\r")
    screen.shows("OUTSIDE THE SANDBOX", "| echo was here > ../outside", "[y] once")


def quiet(screen: Screen, seconds: float = QUIET * 1.5) -> None:
    """Let the keyboard rest, as somebody does who reads."""
    until = time.monotonic() + seconds
    screen.until(lambda: time.monotonic() >= until)


def answers(screen: Screen, key: str) -> None:
    quiet(screen)
    screen.types(key)


@pytest.mark.slow
def test_a_key_approves(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "that was it"])
    asked(screen)
    assert b"\x07" in screen.raw, "a bell"
    assert b"\x1b]9;" in screen.raw, "a notification (claude-code#36850)"
    answers(screen, "y")
    screen.sees("that was it")
    screen.sees("outside the sandbox\n")
    assert ran(desk)


@pytest.mark.slow
def test_a_key_denies_and_the_turn_goes_on(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "then not"])
    asked(screen)
    answers(screen, "n")
    screen.sees("rejected by user", "then not")
    assert not ran(desk)


@pytest.mark.slow
def test_a_denial_says_why(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "then not"])
    asked(screen)
    answers(screen, "d")
    screen.shows("Why not?")
    screen.types("use the other one\r")
    screen.sees("rejected by user: use the other one", "then not")
    assert not ran(desk)


@pytest.mark.slow
def test_a_key_ends_the_turn(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "never said"])
    asked(screen)
    answers(screen, "q")
    screen.sees("tokens in")
    assert "never said" not in screen.text
    assert not ran(desk)


@pytest.mark.slow
def test_typing_ahead_never_approves(chat: Any, desk: Any) -> None:
    """claude-code#21662, codex#31037: keys before and just after the question are text."""
    screen = chat([outside(), "then not"], program=patient("QUIET"))
    screen.types("go\r")
    while "[y] once" not in screen.now:
        screen.types("y")
        screen.read(0.05)
    typed = screen.now.count("y" * 4)
    screen.types("yyyy")
    screen.until(lambda: screen.now.count("y" * 4) > typed, "text of the next message")
    hurry(screen)
    quiet(screen)
    screen.types("y\r")
    quiet(screen)
    assert not ran(desk)
    screen.shows("[y] once")
    answers(screen, "n")
    screen.sees("then not")
    assert not ran(desk)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["do it first", *(pytest.param(text, marks=pytest.mark.long) for text in ("yes do", "each"))],
)
def test_words_never_answer(chat: Any, desk: Any, words: str) -> None:
    """A message that begins with a key, typed at a person's speed, is a message."""
    screen = chat([outside(), "then not"], program=patient("ALONE"))
    asked(screen)
    quiet(screen)
    for key in words:
        screen.types(key)
        screen.read(ALONE / 5)
    screen.shows(f"› {words}", "keys go to your line: Ctrl-C clears it")
    hurry(screen)
    quiet(screen)
    assert not ran(desk)
    screen.types("\x03")
    screen.lacks(f"› {words}")
    answers(screen, "n")
    screen.sees("then not")
    assert not ran(desk)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["marked", "unmarked"])
def test_a_paste_never_approves(chat: Any, desk: Any, how: str) -> None:
    screen = chat([outside(), "then not"], program=patient("ALONE"))
    asked(screen)
    quiet(screen)
    if how == "marked":
        screen.pastes("y")
    else:
        screen.types("y\r")
    screen.shows("› y")
    hurry(screen)
    quiet(screen)
    assert not ran(desk)
    screen.types("\x03")
    screen.lacks("› y")
    answers(screen, "n")
    screen.sees("then not")
    assert not ran(desk)


@pytest.mark.slow
def test_a_long_request_is_approved_only_after_it_was_seen(chat: Any, desk: Any) -> None:
    command = "\n".join(["echo was here > ../outside", *(f"true {n}" for n in range(60))])
    screen = chat([outside(command), "that was it"])
    screen.types("go\r")
    screen.shows("press e to see all of it before you can approve it")
    assert "[y]" not in screen.now
    answers(screen, "y")
    screen.shows("› y")
    assert not ran(desk)
    screen.types("\x7f")
    screen.lacks("› y")
    answers(screen, "e")
    screen.shows("all of the request", "true 15")
    screen.types("q")
    screen.shows("press e to see all of it before you can approve it")  # its end was not seen
    answers(screen, "e")
    screen.shows("all of the request")
    screen.types(" " * 4)
    screen.shows("true 59", "  [y] once")
    screen.types("q")
    screen.lacks("all of the request")
    screen.shows("[y] once")
    answers(screen, "y")
    screen.sees("that was it")
    assert ran(desk)


@pytest.mark.slow
def test_a_request_on_the_smallest_screen_says_what_to_press(chat: Any, desk: Any) -> None:
    """Failed before: a hint that was cut, and no key that approves after it was seen."""
    screen = chat([outside(), "that was it"], size=(5, 20))
    screen.types("go\r")
    screen.shows("… e shows it all")
    answers(screen, "e")
    screen.shows("all of the request")
    screen.types("G")
    screen.shows("this call only")
    screen.types("q")
    screen.shows("[y] once", "[n] deny")
    answers(screen, "y")
    screen.until(lambda: ran(desk), "it runs")


@pytest.mark.slow
def test_several_wait_and_each_has_its_answer(chat: Any, desk: Any) -> None:
    one = outside("echo one > ../outside")
    two = outside("echo two > ../outside2")
    screen = chat([[one, two], "both answered"])
    screen.types("go\r")
    screen.shows("| echo one > ../outside")
    answers(screen, "n")
    screen.shows("| echo two > ../outside2")
    answers(screen, "y")
    screen.sees("both answered")
    assert not ran(desk)
    assert (desk.workspace.parent / "outside2").exists()


@pytest.mark.slow
def test_what_is_critical_wants_a_word(chat: Any, desk: Any) -> None:
    call = Call("exec_command", {"cmd": "echo x >> /etc/hosts-not-there/x", "login": False})
    screen = chat([call, "answered"], program=patient("ALONE"))
    screen.types("go\r")
    screen.shows("critical")
    answers(screen, "y")
    screen.shows("› y")
    screen.types("\x7f")
    answers(screen, "wyes")  # as a paste that the terminal does not mark
    screen.shows("› wyes")
    hurry(screen)
    screen.types("\x15")
    screen.lacks("› wyes")
    answers(screen, "w")
    screen.shows("type yes and Enter")
    screen.types("y\r")
    screen.shows("[w]")
    answers(screen, "w")
    screen.shows("type yes and Enter")
    screen.types("yes\r")
    screen.sees("answered")
    assert "rejected" not in screen.text


def test_an_interrupt_takes_the_question_away(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "never said"])
    asked(screen)
    screen.types("\x1b")
    screen.lacks("OUTSIDE THE SANDBOX")
    screen.sees("stopped after")
    assert not ran(desk)


@pytest.mark.long
def test_in_vi_mode_a_key_answers_once_the_line_is_empty(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "that was it"], settings='[chat]\nedit_mode = "vi"\n')
    asked(screen)
    screen.types("some y")
    screen.shows("› some y")
    screen.types("\x1b")
    screen.shows(": some y")
    answers(screen, "x")  # vi's own: it deletes a character
    screen.shows(": some")
    assert not ran(desk)
    screen.types("dd")
    screen.lacks(": some")
    answers(screen, "y")
    screen.sees("that was it")
    assert ran(desk)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["/approvals", pytest.param("/resume", marks=pytest.mark.long)])
def test_no_list_takes_keys_behind_an_approval(chat: Any, desk: Any, command: str) -> None:
    """Failed before: the next Enter took a row of a list that was not on the screen."""
    screen = chat(["hello", outside(), "then not"])
    screen.types("hello\r")
    screen.sees("tokens in")
    screen.types("/new\r")
    screen.sees("New session")
    asked(screen)
    screen.types(command)
    screen.shows(f"› {command}")
    screen.types("\r")
    screen.sees("answer what is asked first")
    screen.types("\x1b[A")
    screen.types("\x15\r")
    screen.shows("[y] once")
    answers(screen, "n")
    screen.sees("then not")
    assert "Approvals:" not in screen.text
    assert screen.text.count("Toolrest 0.") == 1, "neither settings nor session changed"


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [False, True])
def test_no_row_of_a_command_looks_like_our_own(chat: Any, narrow: bool) -> None:
    """Failed before: the pager broke a padded command where the next row began like ours."""
    forged = "  because:   it only reads"
    words = "x" * (79 - 4) + forged
    screen = chat([outside("\n".join([words, *["true"] * 40])), "then not"])
    screen.types("go\r")
    screen.shows("press e to see all of it")
    answers(screen, "e")
    screen.shows("all of the request", "because:")
    if narrow:
        screen.resizes(24, 60)
        screen.types("g")
        screen.until(lambda: any(row.startswith(" all of") for row in screen.rows))
    rows = [row for row in screen.rows if "only reads" in row or "because" in row]
    assert rows
    assert all(row.startswith("  | ") for row in rows), rows
    screen.types("q")
