"""Sessions in the chat: a summary on demand, copies, and the way back to an earlier message."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.chat.test_approvals import answers
from tests.chat.test_chat import ENTER, ESC, planted, says
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.testing import Call, Freeform

UP = "\x1b[A"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _rollouts(home: Path) -> list[str]:
    paths = sorted((home / "sessions").rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [path.read_text() for path in paths]


def _talk(screen: Screen, *texts: str) -> None:
    for text in texts:
        ended = screen.text.count("Worked for")
        says(screen, text)
        while screen.text.count("Worked for") == ended:
            assert screen.read(0.1)


@pytest.mark.slow
def test_the_list_of_sessions_has_a_row_for_each_text(chat: Any) -> None:
    """Failed before: at most 100 characters, on a terminal of any width."""
    words = " ".join(f"word{n}" for n in range(40))
    screen = chat([words], size=(24, 60))
    _talk(screen, words)
    screen.types("\x04")
    assert screen.ends() == 0
    other = chat.begin("resume", size=(24, 60))
    other.shows("Session [1]:")
    assert other.rows[1].endswith("…")
    assert other.rows[2] == "Session [1]:"
    other.types("\x03")
    assert other.ends() == 130
    assert other.cursor[1] == 0, "what comes next begins a line of its own"


def _goes_back(screen: Screen, ups: int) -> None:
    screen.types(ESC)
    screen.shows("Esc again goes back to an earlier message")
    screen.types(ESC)
    screen.shows("Go back to which message?")
    screen.types(UP * ups)


@pytest.mark.slow
def test_esc_esc_goes_back_to_a_message_and_on_from_there(chat: Any, desk: Any) -> None:
    screen = chat(["answer one", "answer two", "another answer"])
    _talk(screen, "the first question", "the second question")
    _goes_back(screen, 0)
    screen.shows("› the second question", "  the first question")
    screen.types(ENTER)
    screen.shows("Copy of session", "› the second question")
    screen.types(", put differently" + ENTER)
    screen.sees("another answer")
    before, after = _rollouts(desk.home)
    assert "answer two" in before
    assert "another answer" not in before, "it stays as it was"
    assert "answer one" in after
    assert "the second question, put differently" in after
    assert "answer two" not in after
    assert json.loads(after.splitlines()[0])["payload"]["forked_from_id"]


@pytest.mark.long
def test_the_list_of_messages_is_left_with_esc_and_by_writing(chat: Any, desk: Any) -> None:
    screen = chat(["answer one", "answer two"])
    _talk(screen, "the first question")
    _goes_back(screen, 3)
    screen.types(ESC)
    screen.lacks("Go back to which")
    _goes_back(screen, 0)
    screen.types("more")
    screen.lacks("Go back to which")
    screen.types(ENTER)
    screen.sees("answer two")
    assert len(_rollouts(desk.home)) == 1


@pytest.mark.long
def test_a_fork_goes_on_as_a_copy_of_all_of_it(chat: Any, desk: Any) -> None:
    screen = chat(["answer one", "answer two"])
    says(screen, "/back")
    screen.sees("there is no earlier message")
    _talk(screen, "the first question")
    says(screen, "/fork")
    screen.sees("Copy of session")
    says(screen, "and then?")
    screen.sees("answer two")
    before, after = _rollouts(desk.home)
    assert "answer two" not in before
    assert "answer one" in after
    assert "answer two" in after


@pytest.mark.long
def test_a_session_is_picked_from_a_list(chat: Any) -> None:
    screen = chat(["answer one", "answer two"])
    _talk(screen, "the first question")
    says(screen, "/new")
    screen.sees("New session")
    says(screen, "/resume")
    screen.shows("Go on with which session?", "the first question", "… answer one")
    screen.types(ENTER)
    screen.sees("goes on; its last messages:")


def test_compact_replaces_the_conversation_by_a_summary(chat: Any, desk: Any) -> None:
    screen = chat(["answer one", "THE SUMMARY of it", "answer two"])
    says(screen, "/compact")
    screen.sees("there is nothing to summarise yet")
    _talk(screen, "the first question")
    says(screen, "/compact keep the numbers")
    screen.sees("the conversation was summarised")
    says(screen, "and then?")
    screen.sees("answer two")
    lines = [json.loads(line) for line in _rollouts(desk.home)[0].splitlines()]
    kept = next(line["payload"] for line in lines if line["type"] == "compacted")
    assert kept["message"] == "THE SUMMARY of it"
    texts = json.dumps(kept["replacement_history"])
    assert "the first question" in texts
    assert "answer one" not in texts


@pytest.mark.long
def test_without_a_summary_the_conversation_stays(chat: Any, desk: Any) -> None:
    screen = chat(["answer one", "", "answer two"])
    _talk(screen, "the first question")
    says(screen, "/compact")
    screen.sees("the model wrote no summary; the conversation stays as it is")
    assert '"compacted"' not in _rollouts(desk.home)[0]


@pytest.mark.long
def test_feedback_writes_a_report_and_sends_nothing(chat: Any, desk: Any) -> None:
    screen = chat(["answer one"])
    _talk(screen, "the first question")
    says(screen, "/feedback")
    screen.sees("nothing was sent; read it before you send it")
    (report,) = (desk.home / "reports").iterdir()
    assert report.stat().st_mode & 0o777 == 0o600
    assert "the first question" not in report.read_text()


@pytest.mark.long
def test_resume_lists_sessions_with_what_was_said_last(chat: Any, desk: Any) -> None:
    screen = chat(["answer one", "answer two"])
    _talk(screen, "the first question")
    screen.types("\x04")
    assert screen.ends() == 0
    argv = [TOOLREST, "resume"]
    with Screen(argv, cwd=desk.workspace) as other:
        other.sees("[1] ", "the first question", "… answer one", "Session [1]:")
        other.types("\n")
        other.sees("goes on; its last messages:")


@pytest.mark.long
def test_a_picture_is_sent_and_one_that_is_none_is_a_notice(chat: Any, desk: Any) -> None:
    (desk.workspace / "a picture.png").write_bytes(PIXEL)
    (desk.workspace / "text.png").write_text("no picture")
    screen = chat(["I see it"])
    says(screen, "look at text.png")
    screen.sees("is not a PNG, JPEG, GIF or WebP picture", "not sent: look at")
    _talk(screen, "look at 'a picture.png'")
    screen.sees("I see it")
    assert "data:image/png;base64," in _rollouts(desk.home)[0]


def test_a_picture_is_pasted_from_the_clipboard(chat: Any, desk: Any) -> None:
    """Ctrl-V asks the desktop's program; before and after, nothing runs it."""
    clipboard, program = desk.home / "clipboard", desk.home / "bin" / "wl-paste"
    program.parent.mkdir()
    desktop = {"PATH": f"{program.parent}:/usr/bin:/bin", "WAYLAND_DISPLAY": "wayland-0"}
    screen = chat(["I see it"], **desktop)
    screen.types("\x16")
    screen.sees("no program here reads pictures from the clipboard", "xclip (X11)")
    program.write_text(
        f'#!/bin/sh\necho $* >> {desk.home}/asked\n[ "$3" = image/jpeg ] && cat {clipboard}\n'
    )
    program.chmod(0o755)
    screen.types("\x16")
    screen.sees("there is no picture on the clipboard")
    clipboard.write_bytes(PIXEL)
    screen.types("what is this?\x1bv")
    screen.shows("› what is this? [picture 1: 1 kB]")
    screen.types("\x0f")
    screen.shows("what was pasted", "picture-")
    screen.types("q")
    asked = (desk.home / "asked").read_text().splitlines()
    assert asked[-2:] == [f"--no-newline --type image/{kind}" for kind in ("png", "jpeg")]
    screen.shows("[picture 1: 1 kB]")
    _talk(screen, "")
    screen.sees("> what is this?", "I see it")
    assert base64.b64encode(PIXEL).decode() in _rollouts(desk.home)[0]
    (kept,) = (desk.home / "spill").rglob("picture-*.png")
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (PIXEL, 0o600)
    assert len((desk.home / "asked").read_text().splitlines()) == len(asked)


def test_the_clipboards_program_starts_and_loads_nothing_of_the_workspace(
    chat: Any, desk: Any
) -> None:
    """Failed before: its `env` took the plant that is first on PATH, outside the sandbox."""
    program = desk.home / "bin" / "wl-paste"
    program.parent.mkdir()
    program.write_text(f'#!/usr/bin/env sh\n[ "$LD_LIBRARY_PATH" ] || cat {desk.home}/picture\n')
    program.chmod(0o755)
    (desk.home / "picture").write_bytes(PIXEL)
    variables = planted(desk, "sh", "cat")
    variables["PATH"] = f"{variables['PATH']}:{program.parent}"
    screen = chat(["I see it"], WAYLAND_DISPLAY="wayland-0", **variables)
    screen.types("\x16")
    screen.shows("› [picture 1: 1 kB]")
    assert not (desk.workspace / "ran").exists()


@pytest.mark.long
def test_a_clipboard_that_hangs_or_floods_is_given_up(chat: Any, desk: Any) -> None:
    program = desk.home / "bin" / "xclip"
    program.parent.mkdir()
    desktop = {"PATH": f"{program.parent}:/usr/bin:/bin", "DISPLAY": ":0"}
    screen = chat(["fine"], **desktop)
    for body, message in (("exec cat /dev/zero", "larger than"), ("exec sleep 1000", "within 5 s")):
        program.write_text(f"#!/bin/sh\necho $$ > {desk.home}/pid\n{body}\n")
        program.chmod(0o755)
        screen.types("\x16")
        screen.sees(message)
        assert not Path("/proc", (desk.home / "pid").read_text().strip()).exists()
    _talk(screen, "hello")


@pytest.mark.long
@pytest.mark.needs("sandbox")
def test_a_command_in_the_background_is_attached_to_and_ended(chat: Any) -> None:
    command = {"cmd": "echo started; cat", "tty": True, "login": False, "yield_time_ms": 500}
    screen = chat([Call("exec_command", command), "it goes on", "it has ended"])
    _talk(screen, "start it")
    (number,) = re.findall(r"goes on in the background as (\d+)", screen.text)
    says(screen, "/ps")
    screen.sees(f"{number}  ", "  echo started; cat", "/ps NUMBER attaches to one")
    says(screen, f"/ps {number}")
    screen.shows("Ctrl-] leaves", "started")
    screen.types("hello you" + ENTER)
    screen.until(lambda: screen.now.count("hello you") == 2, "the echo and what cat makes of it")
    screen.types("\x1d")
    screen.shows("context left")
    says(screen, f"/ps kill {number}")
    screen.sees(f"{number} was ended")
    says(screen, f"/ps {number}")
    screen.sees("no command runs in the background")


@pytest.mark.long
def test_when_to_ask_is_picked_from_a_list(chat: Any) -> None:
    screen = chat(["answer one"])
    says(screen, "/approvals")
    screen.shows("When to ask?", "› on-request", "  untrusted")
    screen.types(UP + UP + ENTER)
    screen.sees("Approvals: untrusted")


@pytest.mark.long
@pytest.mark.needs("sandbox")
def test_undo_reaches_over_a_summary(chat: Any, desk: Any) -> None:
    (desk.workspace / "a.txt").write_text("before\n")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-before\n+after\n*** End Patch"
    script = [Freeform("apply_patch", patch), "patched", "THE SUMMARY"]
    screen = chat(script, "chat", "-s", "workspace-write")
    _talk(screen, "patch it")
    assert (desk.workspace / "a.txt").read_text() == "after\n"
    says(screen, "/compact")
    screen.sees("the conversation was summarised")
    says(screen, "/undo")
    screen.until(lambda: (desk.workspace / "a.txt").read_text() == "before\n", "it is undone")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_the_diff_is_of_this_session_and_of_all_of_it(chat: Any, desk: Any) -> None:
    """Failed before: nothing after a resume, and another session's patches after /new."""
    (desk.workspace / "a.txt").write_text("before\n")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-before\n+after\n*** End Patch"
    failing = "*** Begin Patch\n*** Update File: a.txt\n@@\n-never there\n+wrong\n*** End Patch"
    script = [Freeform("apply_patch", failing), Freeform("apply_patch", patch), "patched"]
    screen = chat(script, "chat", "-s", "workspace-write")
    _talk(screen, "patch it")
    screen.types("\x04")
    assert screen.ends() == 0
    other = chat.again("resume", "--last")
    other.sees("goes on; its last messages:")
    says(other, "/diff")
    other.shows("changed up to the last turn", "update a.txt", "-before", "+after")
    assert "wrong" not in other.now
    assert b"31m-before" in other.raw, "in colours"
    assert b"32m+after" in other.raw
    other.types("q")
    other.shows("context left")
    says(other, "/new")
    opened = b"New session"  # the emulator has one screen, and so does the pager
    other.until(lambda: opened in other.raw, "the new session")
    says(other, "/diff")
    other.sees("this session has changed nothing")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_permissions_list_what_is_granted(chat: Any) -> None:
    arguments = {"cmd": "true", "login": False, "sandbox_permissions": "require_escalated"}
    call = Call("exec_command", arguments | {"justification": "May I?", "prefix_rule": ["true"]})
    screen = chat([call, "that was it"])
    says(screen, "go")
    screen.shows("2. Yes, for this session")
    answers(screen, "s")
    screen.sees("that was it", "Worked for")
    says(screen, "/permissions")
    screen.sees("granted (session): ")


@pytest.mark.slow
def test_leaving_the_list_of_sessions_opens_none(chat: Any, desk: Any) -> None:
    """Failed before: Ctrl-D opened the first one."""
    screen = chat(["answer one"])
    _talk(screen, "the first question")
    screen.types("\x04")
    assert screen.ends() == 0
    with Screen([TOOLREST, "resume"], cwd=desk.workspace) as other:
        other.sees("Session [1]:")
        other.types("\x04")
        assert other.ends() == 130
        assert "goes on; its last messages" not in other.text
    with Screen([TOOLREST, "resume"], cwd=desk.workspace) as other:
        other.sees("Session [1]:")
        other.types("²\n")
        assert other.ends() == 2
        assert "there is no number ² in the list" in other.text


@pytest.mark.slow
def test_clear_begins_a_session_on_an_empty_screen(chat: Any, desk: Any) -> None:
    screen = chat(["answer one", "answer two"])
    _talk(screen, "the first question")
    says(screen, "/clear")
    screen.sees("New session")
    screen.lacks("the first question")
    assert any("the first question" in row for row in screen.above), "it scrolled away"
    assert screen.rows[0].startswith("New session"), screen.rows
    _talk(screen, "the second question")
    assert len(_rollouts(desk.home)) == 2
    says(screen, "/exit")
    assert screen.ends() == 0
