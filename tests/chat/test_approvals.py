"""Approvals in the chat: one key that was meant as an answer, and nothing else, approves."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from tests.patience import hurry, patient
from tests.screen import Screen

from toolrest.chat.questions import ALONE, QUIET
from toolrest.testing import Call, Freeform

pytestmark = pytest.mark.needs("sandbox")


def outside(cmd: str = "echo was here > ../outside", reason: str = "May I?") -> Call:
    arguments = {
        "cmd": cmd,
        "login": False,
        "sandbox_permissions": "require_escalated",
        "justification": reason,
    }
    return Call("exec_command", arguments)


def ran(desk: Any) -> bool:
    return bool((desk.workspace.parent / "outside").exists())


def asked(screen: Screen) -> None:
    screen.types("go\r")
    screen.shows(
        "Run this command outside the sandbox?", "  $ echo was here > ../outside", "1. Yes"
    )


def quiet(screen: Screen, seconds: float = QUIET * 1.5) -> None:
    """Let the keyboard rest, as somebody does who reads."""
    until = time.monotonic() + seconds
    screen.until(lambda: time.monotonic() >= until)


def answers(screen: Screen, key: str) -> None:
    quiet(screen)
    screen.types(key)


def denies(screen: Screen, note: str = "") -> None:
    """Say no, and what to do instead."""
    answers(screen, "n")
    screen.shows("What should it do instead?")
    screen.types(f"{note}\r")


@pytest.mark.slow
@pytest.mark.parametrize("key", ["y", "1", "\r"])
def test_a_key_approves(chat: Any, desk: Any, key: str) -> None:
    screen = chat([outside(), "that was it"])
    asked(screen)
    assert b"\x07" in screen.raw, "a bell"
    assert b"\x1b]9;" in screen.raw, "a notification (claude-code#36850)"
    answers(screen, key)
    screen.sees("that was it")
    screen.until(lambda: re.search(r"  Ran .* outside the sandbox", screen.text), "it says so")
    assert ran(desk)


@pytest.mark.slow
def test_arrows_mark_an_answer_and_enter_takes_it(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "then not"])
    asked(screen)
    assert "  › 1. Yes" in screen.rows
    answers(screen, "\x1b[A")
    screen.until(lambda: any(row.startswith("  › 2. No, and say") for row in screen.rows))
    quiet(screen, ALONE * 1.5)
    screen.types("\r")
    screen.shows("What should it do instead?")
    screen.types("\r")
    screen.sees("You said no", "then not")
    assert not ran(desk)


def test_the_models_reason_cannot_be_taken_for_ours(chat: Any) -> None:
    """Failed before: its second row stood where our own notes do."""
    claim = "It writes nothing, and it runs in the sandbox all the same, as it did before."
    screen = chat([outside(reason=f"{'x' * 56} {claim} Trust me."), "then not"], NO_COLOR="1")
    asked(screen)
    start = screen.rows.index("  Run this command outside the sandbox?")
    assert screen.rows[start + 2].startswith("    It writes nothing")
    assert screen.rows[start + 2].endswith(" …")


@pytest.mark.slow
def test_a_question_is_small_and_in_plain_words(chat: Any) -> None:
    screen = chat([outside("curl -sS https://example.com/x"), "then not"])
    screen.types("go\r")
    screen.shows("1. Yes")
    quiet(screen)
    start = screen.rows.index("  Run this command outside the sandbox?")
    rows = screen.rows[start : screen.rows.index("›")]
    assert rows == [
        "  Run this command outside the sandbox?",
        "  The model says: May I?",
        "",
        "  $ curl -sS https://example.com/x",
        "",
        "  › 1. Yes",
        "    2. Yes, for this session",
        "    3. Yes, always in this project",
        "    4. No, and say what to do instead",
        "  Enter or 1-4 · e details · Esc stops the turn",
    ]
    for machine in ("SANDBOX", "exec_command", "command.", '["curl"'):
        assert machine not in "\n".join(rows)
    answers(screen, "e")
    screen.shows('exactly the command ["curl", "-sS",', "[a] in every")
    screen.types("q")
    screen.shows("a. Yes, always in every project")


@pytest.mark.slow
def test_a_denial_says_what_to_do_instead_and_the_turn_goes_on(
    chat: Any, desk: Any, serve: Any
) -> None:
    screen = chat([outside(), "then not"])
    asked(screen)
    denies(screen, "use the fixtures instead")
    screen.sees('You said no: "use the fixtures instead"', "then not")
    assert "Denied" not in screen.text
    assert not ran(desk)
    given = json.dumps(serve.servers[-1].requests[-1].body["input"])
    assert "rejected by user: use the fixtures instead" in given


@pytest.mark.slow
def test_esc_stops_the_turn(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "never said"])
    asked(screen)
    screen.types("\x1b")
    screen.sees("Not run echo was here", "stopped after")
    assert "never said" not in screen.text
    assert not ran(desk)


@pytest.mark.slow
def test_typing_ahead_never_approves(chat: Any, desk: Any) -> None:
    """claude-code#21662, codex#31037: keys before and just after the question are no answer.

    What stood in the line stays there, and what comes too early is dropped.
    """
    screen = chat([outside(), "then not", "and that"], program=patient("QUIET"))
    screen.types("go\r")
    screen.types("a draft ")
    screen.shows("1. Yes")
    for key in ("y", "1", "\r", "yes do\r"):
        screen.types(key)
        screen.shows("one moment")
    hurry(screen)
    screen.types("y")
    quiet(screen)
    assert not ran(desk)
    screen.shows("1. Yes")
    denies(screen)
    screen.sees("You said no", "then not")
    screen.shows("› a draft")
    assert not ran(desk)
    screen.types("\r")
    screen.sees("> a draft", "and that")


@pytest.mark.slow
def test_what_could_not_be_read_yet_is_not_approved(chat: Any, desk: Any) -> None:
    """The keyboard was never touched, and the key comes as soon as the question is there."""
    screen = chat([outside(), "then not"], "chat", "go", program=patient("QUIET"))
    screen.shows("1. Yes")
    screen.types("y")
    screen.shows("one moment")
    quiet(screen)
    assert not ran(desk)


@pytest.mark.slow
def test_nobody_approves_in_the_middle_of_a_sentence(chat: Any, desk: Any) -> None:
    """The question comes while somebody types on, for longer than it is new."""
    screen = chat([outside(), "then not"])
    screen.types("go\r")
    typed = 0
    while "1. Yes" not in screen.now or typed < 20:
        typed += "1. Yes" in screen.now
        for key in ("y", "1", "\r"):
            screen.types(key if typed else "x")
            screen.read(QUIET / 8)
    quiet(screen)
    assert not ran(desk)
    screen.shows("1. Yes")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["yes do", *(pytest.param(text, marks=pytest.mark.long) for text in ("no way", "each"))],
)
def test_words_never_answer(chat: Any, desk: Any, words: str) -> None:
    """A sentence that begins with a key, typed at a person's speed, is no answer."""
    screen = chat([outside(), "then not"], program=patient("ALONE"))
    asked(screen)
    quiet(screen)
    for key in words:
        screen.types(key)
        screen.read(ALONE / 5)
    screen.shows("one moment")
    assert words not in screen.now, "no letter goes to the line"
    hurry(screen)
    quiet(screen)
    assert not ran(desk)
    denies(screen)
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
    screen.shows("one moment")
    hurry(screen)
    quiet(screen)
    assert not ran(desk)
    denies(screen)
    screen.sees("then not")
    assert not ran(desk)


@pytest.mark.slow
def test_a_long_request_is_approved_only_after_it_was_seen(chat: Any, desk: Any) -> None:
    command = "\n".join(["echo was here > ../outside", *(f"true {n}" for n in range(60))])
    screen = chat([outside(command), "that was it"])
    screen.types("go\r")
    screen.shows("› e. Show all of it, then answer", "more lines")
    assert "1. Yes" not in screen.now
    answers(screen, "y")
    answers(screen, "1")
    quiet(screen)
    assert not ran(desk)
    answers(screen, "e")
    screen.shows("q leaves", "true 15")
    screen.types("q")
    screen.shows("Show all of it, then answer")  # its end was not seen
    answers(screen, "\r")
    screen.shows("q leaves")
    screen.types("G")
    screen.shows("true 59", "  [y] this call only")
    screen.types("q")
    screen.lacks("q leaves")
    screen.shows("1. Yes")
    answers(screen, "y")
    screen.sees("that was it")
    assert ran(desk)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [50, 42])
def test_answers_that_wrap_never_hide_the_command(chat: Any, columns: int) -> None:
    """Failed before: rows of the answers were counted as if none wrapped, and cut the command."""
    end = "the-end-of-it"
    command = f"git push git@github.com:me/tea-shop.git a-branch-{end}"
    screen = chat([outside(command), "then not"], size=(15, columns))
    screen.types("go\r")
    screen.shows("No, and say")
    shown = "".join(row[4:] for row in screen.rows if row.startswith(("  $ ", "  | ", "  > ")))
    assert end in shown or "1. Yes" not in screen.now, screen.now


@pytest.mark.slow
def test_a_change_stands_above_its_question_once(chat: Any, desk: Any) -> None:
    (desk.workspace / "cart.py").write_text("a = 1\nb = 2\n")
    patch = "*** Begin Patch\n*** Update File: cart.py\n@@\n a = 1\n-b = 2\n+b = 3\n*** End Patch\n"
    screen = chat([Freeform("apply_patch", patch), "done"], "chat", "-a", "untrusted")
    screen.types("go\r")
    screen.shows("Change cart.py?", "1. Yes")
    start = screen.rows.index("  cart.py")
    assert [row.split() for row in screen.rows[start + 1 : start + 4]] == [
        ["1", "a", "=", "1"],
        ["2", "-b", "=", "2"],
        ["2", "+b", "=", "3"],
    ]
    assert len(screen.rows[screen.rows.index("  Change cart.py?") : screen.rows.index("›")]) <= 10
    answers(screen, "y")
    screen.sees("done", "Worked for")
    assert screen.text.count("+b = 3") == 1
    assert (desk.workspace / "cart.py").read_text() == "a = 1\nb = 3\n"


@pytest.mark.slow
def test_a_long_change_is_approved_only_after_it_was_seen(chat: Any, desk: Any) -> None:
    lines = "".join(f"+line {n}\n" for n in range(60))
    patch = f"*** Begin Patch\n*** Add File: big.py\n{lines}*** End Patch\n"
    screen = chat([Freeform("apply_patch", patch), "done"], "chat", "-a", "untrusted")
    screen.types("go\r")
    screen.shows("Change big.py?", "read-only.", "+60", "› e. Show all of it")
    answers(screen, "y")
    quiet(screen)
    assert not (desk.workspace / "big.py").exists()
    answers(screen, "e")
    screen.shows("q leaves", "+line 0")
    screen.types("G")
    screen.shows("[y] this call only")
    screen.types("q")
    screen.shows("1. Yes")
    answers(screen, "y")
    screen.sees("done")
    assert (desk.workspace / "big.py").exists()


@pytest.mark.slow
def test_a_request_on_the_smallest_screen_says_what_to_press(chat: Any, desk: Any) -> None:
    """Failed before: a hint that was cut, and no key that approves after it was seen."""
    screen = chat([outside(), "that was it"], size=(5, 20))
    screen.types("go\r")
    screen.shows("› e. Show all")
    answers(screen, "e")
    screen.until(lambda: screen.rows[0].startswith(" all of"))
    screen.types("G")
    screen.shows("[y] this")
    screen.types("q")
    screen.shows("› 1. Yes")
    answers(screen, "y")
    screen.until(lambda: ran(desk), "it runs")


@pytest.mark.slow
def test_several_wait_and_each_has_its_answer(chat: Any, desk: Any) -> None:
    one = outside("echo one > ../outside")
    two = outside("echo two > ../outside2")
    screen = chat([[one, two], "both answered"])
    screen.types("go\r")
    screen.shows("$ echo one > ../outside")
    denies(screen)
    screen.shows("$ echo two > ../outside2")
    answers(screen, "y")
    screen.sees("both answered")
    assert not ran(desk)
    assert (desk.workspace.parent / "outside2").exists()


@pytest.mark.slow
def test_what_is_critical_wants_a_word(chat: Any, desk: Any) -> None:
    call = Call("exec_command", {"cmd": "echo x >> /etc/hosts-not-there/x", "login": False})
    screen = chat([call, "answered"], program=patient("ALONE"))
    screen.types("go\r")
    screen.shows("Run this dangerous command?", "1. Yes (asks you to type yes)")
    answers(screen, "1yes\r")  # as a paste that the terminal does not mark
    screen.shows("one moment")
    hurry(screen)
    quiet(screen)
    for typed in ("y\r", "no\r", "\r"):
        answers(screen, "y")
        screen.shows("Type yes and Enter")
        screen.types(typed)
        screen.shows("1. Yes (asks")
    answers(screen, "y")
    screen.shows("Type yes and Enter")
    screen.types("yes\r")
    screen.sees("answered")
    assert "You said no" not in screen.text


def test_an_interrupt_takes_the_question_away(chat: Any, desk: Any) -> None:
    screen = chat([outside(), "never said"])
    asked(screen)
    screen.types("\x1b")
    screen.lacks("outside the sandbox?")
    screen.sees("stopped after")
    assert not ran(desk)


@pytest.mark.slow
def test_in_vi_mode_a_key_answers_and_the_line_stays(chat: Any, desk: Any) -> None:
    """Also in normal mode, whose letters would edit the line."""
    screen = chat([outside(), "that was it"], settings='[chat]\nedit_mode = "vi"\n')
    screen.types("go\r")
    screen.types("some y\x1b")
    screen.shows(" some y", "1. Yes")
    answers(screen, "d")  # vi's own
    quiet(screen)
    assert not ran(desk)
    answers(screen, "y")
    screen.sees("that was it")
    screen.shows("some y")
    assert ran(desk)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["/approvals", pytest.param("/resume", marks=pytest.mark.long)])
def test_no_command_is_taken_behind_an_approval(chat: Any, desk: Any, command: str) -> None:
    """Failed before: the next Enter took a row of a list that was not on the screen."""
    screen = chat(["hello", outside(), "then not"])
    screen.types("hello\r")
    screen.sees("Worked for")
    screen.types("/new\r")
    screen.sees("New session")
    asked(screen)
    screen.types(f"{command}\r")
    screen.shows("one moment")
    screen.types("\x1b[A\x15\r")
    quiet(screen)
    screen.shows("1. Yes")
    assert not ran(desk)
    denies(screen)
    screen.sees("then not")
    assert "Approvals:" not in screen.text
    assert screen.text.count("Toolrest 0.") == 1, "neither settings nor session changed"


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [False, True])
def test_no_row_of_a_command_looks_like_our_own(chat: Any, narrow: bool) -> None:
    """Failed before: the pager broke a padded command where the next row began like ours."""
    forged = "  Run this command?"
    words = "x" * (79 - 4) + forged
    screen = chat([outside("\n".join([words, *["true"] * 40])), "then not"])
    screen.types("go\r")
    screen.shows("Show all of it, then answer")
    answers(screen, "e")
    screen.shows("all of it", "Run this command?")
    if narrow:
        screen.resizes(24, 60)
        screen.types("g")
        screen.until(lambda: any(row.startswith(" all of it") for row in screen.rows))
    rows = [row for row in screen.rows if "command?" in row]
    assert rows
    assert all(row.startswith("  | ") for row in rows), rows
    screen.types("q")
