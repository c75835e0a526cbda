"""What people do in the chat all day, on a real terminal that an emulator reads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from base64 import b64decode
from typing import Any

import pytest
from tests.chat.conftest import READY
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.chat.commands.copying import copied_text, osc52
from toolrest.chat.commands.names import COMMANDS
from toolrest.testing import Call, Fail, Freeform, Say, Think
from toolrest.timeline.cells import MessageCell

ENTER, ESC, CTRL_C, CTRL_D, CTRL_O = "\r", "\x1b", "\x03", "\x04", "\x0f"
LINES = "\n".join(f"line {n} of the answer" for n in range(60))


def says(screen: Screen, text: str) -> None:
    screen.types(text)
    screen.shows(f"› {text}"[:60])
    screen.types(ENTER)


def test_an_answer_is_ordinary_text_and_all_of_it_is_there(chat: Any) -> None:
    """Native scrollback, no mouse capture, no other screen (claude-code#41965, mistral-vibe#41)."""
    screen = chat([LINES])
    says(screen, "hello")
    screen.sees("line 59 of the answer", "Worked for")
    rows = [row[2:] for row in screen.text.splitlines() if row[2:].startswith("line ")]
    assert rows == LINES.splitlines(), "each line once, in order"
    assert "● line 0 of the answer" in screen.above
    for mode in (b"\x1b[?1000h", b"\x1b[?1002h", b"\x1b[?1003h", b"\x1b[?1049h", b"\x1b[2J"):
        assert mode not in screen.raw
    screen.types(CTRL_D)
    assert screen.ends() == 0


def test_updates_are_whole(chat: Any) -> None:
    """No flicker: every update is one synchronized write (claude-code#769)."""
    screen = chat([LINES])
    says(screen, "hello")
    screen.sees("line 59 of the answer", "Worked for")
    assert screen.raw.count(b"\x1b[?2026h") == screen.raw.count(b"\x1b[?2026l") > 3
    outside = b"".join(
        part.rsplit(b"\x1b[?2026l", 1)[-1] for part in screen.raw.split(b"\x1b[?2026h")
    )
    assert b"line" not in outside


def test_an_answer_is_drawn_from_its_markdown(chat: Any) -> None:
    """Words are whole, a link to the web can be followed, and nothing else becomes one."""
    words = " ".join(["wordwise"] * 40)
    text = (
        f"# Plan\n\n{words}\n\n[here](https://a.example/b) [not](javascript:x) \x1b]8;;data:c\x07"
    )
    screen = chat([text, text])
    says(screen, "hello")
    screen.sees("● Plan", "here (https://a.example/b)", "Worked for")
    said = [row.split() for row in screen.text.splitlines() if "word" in row]
    assert {word for row in said for word in row} == {"wordwise"}
    assert set(re.findall(rb"\x1b\]8;;([^\x1b\x07]+)", screen.raw)) == {b"https://a.example/b"}
    plain = chat.again(NO_COLOR="1")
    says(plain, "hello")
    plain.sees("● Plan", "here (https://a.example/b)", "Worked for")
    assert b"\x1b]8;" not in plain.raw


ANSWER = f"""{" ".join(f"word{n}" for n in range(60))} \x1b[201~

- a list with
  ```python
  x = 1

  y = 2
  ```

```sh
ls
```"""


def copied(raw: bytes) -> list[str]:
    """What the terminal was told to copy."""
    return [b64decode(data).decode() for data in re.findall(rb"\x1b\]52;c;([^\x07]*)\x07", raw)]


def test_copied_text_is_what_was_said(chat: Any) -> None:
    """No row that was wrapped, no indent, no colour (opencode#47165); and by a key alone."""
    screen = chat([ANSWER])
    says(screen, "/copy")
    screen.sees("there is no answer to copy yet")
    says(screen, "hello")
    screen.sees("word59", "Worked for")
    assert copied(screen.raw) == []
    for words, shown in (
        ("/copy", "Copied the last answer (12 lines)"),
        ("/copy 1", "Copied code block 1 (3 lines)"),
        ("/copy 2", "Copied code block 2 (1 line)"),
        ("/copy 3", "the last answer has 2 code blocks"),
        ("/copy all", "Copied this session"),
    ):
        says(screen, words)
        screen.sees(shown)
    answer = ANSWER.replace("\x1b", "")
    assert copied(screen.raw)[:-1] == [answer, "x = 1\n\ny = 2", "ls"]
    assert copied(screen.raw)[-1] == f"## User\n\nhello\n\n{answer}"


def test_a_copy_holds_no_more_than_the_screen(chat: Any) -> None:
    """Failed before: a secret that a model wrote was copied."""
    key = "sk-" + "a1B2" * 8
    screen = chat([f"It is {key}."], SHOP_API_KEY=key)
    says(screen, f"is it {key}?")
    screen.sees("It is [redacted", "Worked for")
    for words in ("/copy", "/copy all"):
        says(screen, words)
        screen.sees("Copied")
        assert copied(screen.raw)[-1].endswith("It is [redacted:SHOP_API_KEY].")
        assert key not in copied(screen.raw)[-1]


def test_a_letter_that_is_none_is_not_copied() -> None:
    """Failed before, as an error in Toolrest itself."""
    _, text = copied_text([MessageCell(text="one\ud800 two")], "")
    assert b64decode(osc52(text)[7:-1]) == b"one two"


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("size", [(24, 80), (5, 20), (8, 30)])
def test_the_live_part_fits_the_screen(chat: Any, size: tuple[int, int]) -> None:
    """Never taller than the screen (gemini-cli#2428), 20x5 included."""
    steps = [{"step": f"step {n}", "status": "pending"} for n in range(30)]
    script = [
        [
            Call("update_plan", {"plan": steps}),
            Call("exec_command", {"cmd": "seq 40", "login": False}),
        ],
        "the end",
    ]
    screen = chat(script, size=size)
    screen.types("go" + ENTER)
    screen.sees("the end", "Worked for")
    screen.shows("›")
    rows = [row.strip() for row in screen.text.splitlines()]
    for number in range(36, 41):
        assert rows.count(str(number)) == 1


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_an_output_runs_along_and_is_whole_in_the_pager(chat: Any, desk: Any) -> None:
    """A live tail, and everything behind a key (claude-code#26954)."""
    os.mkfifo(desk.workspace / "gate")
    command = "seq 1 30; read x < gate; echo over"
    screen = chat([Call("exec_command", {"cmd": command, "login": False}), "done"])
    says(screen, "go")
    screen.shows("  30", "25 more lines", "Esc stops")
    with open(desk.workspace / "gate", "w") as gate:
        gate.write("on\n")
    screen.sees("over", "done", "Worked for")
    screen.types(CTRL_O)
    screen.shows("q leaves", "12")
    assert "seq 1 30" in screen.rows[0]
    screen.types(" ")
    screen.until(lambda: any(row.startswith("over") for row in screen.rows), "the next page")
    screen.types("b")
    screen.until(lambda: screen.rows[1].startswith("1 "), "the page before")
    screen.types("/q")
    screen.shows("I-search: q")  # searched for, and not left
    screen.types("\x7f30\r")
    screen.shows("30")
    screen.types("q")
    screen.shows("›")
    screen.lacks("q leaves")


def test_resizes_leave_nothing_behind(chat: Any) -> None:
    """Clean resize (claude-code#49086)."""
    screen = chat([LINES, "after"])
    says(screen, "hello")
    screen.sees("Worked for")
    for size in ((24, 60), (24, 100), (24, 40), (24, 80)):
        screen.resizes(*size)
        screen.types("x")
        screen.shows("› x")
        screen.types("\x7f")
        screen.lacks("› x")
    says(screen, "again")
    screen.sees("after")
    screen.until(lambda: screen.now.count("context left") == 1, "one footer")
    assert sum(row.startswith("›") for row in screen.rows) == 1


# The composer


def test_a_newline_is_not_the_end_of_a_message(chat: Any, serve: Any) -> None:
    """Ctrl-J, Alt-Enter and a backslash in any terminal (codex#16121); a paste (codex#2006)."""
    screen = chat(["got it"])
    screen.types("one\ntwo\x1b\rthree\\" + ENTER)
    screen.pastes("four\r\nfive\n")
    screen.shows("five")
    assert "got it" not in screen.text
    screen.types("six" + ENTER)
    screen.sees("got it", "Worked for")
    rows = [row.strip("> ") for row in screen.text.splitlines()]
    at = rows.index("one")
    assert rows[at : at + 6] == ["one", "two", "three", "four", "five", "six"]


@pytest.mark.parametrize("form", ["\x1b[13;2u", "\x1b[27;2;13~"])
def test_shift_enter_is_a_newline_where_the_terminal_tells(chat: Any, form: str) -> None:
    """Failed before: the form of xterm and tmux sent the message."""
    screen = chat(["got it"])
    screen.types("one")
    screen.shows("› one")
    screen.types(form)
    screen.types("two")
    screen.shows("  two")
    screen.types(ENTER)
    screen.sees("> one\n  two", "got it")


def test_a_paste_that_the_terminal_does_not_mark_is_not_sent_at_its_first_newline(
    chat: Any,
) -> None:
    screen = chat(["got it"])
    text = "\r".join(f"unmarked {n}" for n in range(300))  # more than one read holds
    screen.types(f"first\rsecond\r{text}\r")
    screen.shows("lines]")
    screen.types(CTRL_O)
    screen.shows("what was pasted", "second")
    assert "got it" not in screen.text
    screen.types("q")
    screen.shows("› [paste 1: 303 lines]")
    screen.types(ENTER)
    screen.sees("got it", "  unmarked 299", "Worked for")
    assert screen.text.count("> ") == 1, "one message"


@pytest.mark.parametrize("joint", ["\runmarked 168", "68\r", "68\r\r"])
def test_an_unmarked_paste_that_comes_in_parts_is_one(chat: Any, joint: str) -> None:
    """Failed before: a machine at its limits brought the second half late, as a paste of its own,

    or, where that was short, as keys of which the newline sent the message.
    """
    screen = chat(["got it"])
    screen.types("\r".join(f"unmarked {n}" for n in range(168)) + "\runmarked 1")
    screen.shows("› [paste 1: 169 lines]")
    screen.types(joint)
    whole = "\r".join(f"unmarked {n}" for n in range(168)) + "\runmarked 1" + joint
    screen.shows(f"› [paste 1: {whole.count(chr(13)) + 1} lines]")
    screen.types("\x05!")  # a key of the person: the paste is over
    screen.shows("lines]!")
    assert "got it" not in screen.text
    screen.types(ENTER)
    screen.sees("got it", "  unmarked 167", "Worked for")
    assert screen.text.count("> ") == 1, "one message"


def test_a_large_paste_is_folded_can_be_seen_and_is_sent_whole(chat: Any) -> None:
    """copilot-cli#2997, and honest copy (opencode#50208): what is sent is what was pasted."""
    screen = chat(["thanks"])
    text = "\n".join(f"pasted {n}" for n in range(100))
    screen.types("look: ")
    screen.pastes(text)
    screen.shows("› look: [paste 1: 100 lines]")
    assert "pasted 50" not in screen.text
    screen.types(CTRL_O)
    screen.shows("what was pasted", "pasted 3")
    screen.types("q")
    screen.shows("[paste 1: 100 lines]")
    screen.types(ENTER)
    screen.sees("thanks", "Worked for")
    assert "\n".join(f"  pasted {n}" for n in range(1, 100)) in screen.text


def test_files_are_completed(chat: Any, desk: Any) -> None:
    (desk.workspace / "src").mkdir()
    (desk.workspace / "src" / "window_manager.py").touch()
    (desk.workspace / "other.txt").touch()
    screen = chat(["ok"])
    screen.types("look at @wima")
    screen.shows("src/window_manager.py")
    assert "other.txt" not in screen.now
    screen.types("\t")
    screen.shows("› look at @src/window_manager.py")


@pytest.mark.needs("sandbox")
def test_files_are_completed_as_git_lists_them(chat: Any, desk: Any) -> None:
    """Tracked and new files, not ignored ones; no program that the repository names is run."""
    folder = desk.workspace
    (folder / ".gitignore").write_text("*.log\nbuilt/\n")
    (folder / "built").mkdir()
    for name in ("first_thing.py", "first_thing.log", "built/first_thing.o"):
        (folder / name).touch()
    (folder / "monitor").write_text(f"#!/bin/sh\ntouch {folder}/was_run /tmp/was_run\n")
    (folder / "monitor").chmod(0o755)
    for words in (["init", "-q"], ["add", "first_thing.py"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / "first_new.py").touch()
    subprocess.run(["git", "config", "core.fsmonitor", f"{folder}/monitor"], cwd=folder, check=True)
    screen = chat(["ok"])
    screen.types("look at @first")
    screen.shows("  first_new.py", "  first_thing.py")
    assert "first_thing.log" not in screen.now
    assert "first_thing.o" not in screen.now
    assert not (folder / "was_run").exists()


@pytest.mark.slow
def test_messages_are_remembered_across_sessions(chat: Any, desk: Any) -> None:
    screen = chat(["one", "two"])
    says(screen, "what I said yesterday")
    screen.sees("Worked for")
    screen.types(CTRL_D)
    assert screen.ends() == 0
    assert (desk.home / "chat" / "history.jsonl").stat().st_mode & 0o777 == 0o600
    other = chat.again()
    other.types("\x1b[A")
    other.shows("› what I said yesterday")


def test_earlier_messages_are_searched(chat: Any) -> None:
    screen = chat(["one", "two", "three"])
    for text in ("the first message", "another thing"):
        says(screen, text)
        screen.sees(f"> {text}")
    screen.types("\x12first")
    screen.shows("earlier messages: first", "› the first message")
    screen.types(ENTER)
    screen.lacks("earlier messages")
    screen.types("\x05 again" + ENTER)
    screen.sees("> the first message again")


def test_wide_characters_have_the_cursor_where_it_belongs(chat: Any) -> None:
    """The terminal's own cursor is where an input method draws (claude-code#25186)."""
    screen = chat(["ok"])
    screen.types("日本語")
    screen.shows("› 日 本 語" if "日 本" in screen.now else "› 日本語")
    screen.until(lambda: screen.cursor[1] == 2 + 6, "behind three wide characters")
    screen.types("\x1b[D")
    screen.until(lambda: screen.cursor[1] == 2 + 4, "one to the left")


# Turns


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_message_steers_and_another_waits(chat: Any, desk: Any) -> None:
    os.mkfifo(desk.workspace / "gate")
    call = Call("exec_command", {"cmd": "echo started; read x < gate", "login": False})
    screen = chat([call, "first answer", "second answer"])
    says(screen, "go")
    screen.shows("  started")
    says(screen, "and also this")
    screen.lacks("› and also")
    screen.shows("next: and also this")
    screen.types("afterwards that\t")
    screen.shows("queued: afterwards that")
    with open(desk.workspace / "gate", "w") as gate:
        gate.write("on\n")
    screen.sees("> and also this", "first answer", "> afterwards that", "second answer")
    text = screen.text
    assert text.index("> and also this") < text.index("first answer")
    assert text.index("first answer") < text.index("> afterwards that")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_escape_interrupts_and_the_session_goes_on(chat: Any) -> None:
    call = Call("exec_command", {"cmd": "echo started; sleep 1000", "login": False})
    screen = chat([call, "still here"])
    says(screen, "go")
    screen.shows("  started")
    screen.types(ESC)
    screen.sees("stopped after")
    says(screen, "are you there?")
    screen.sees("still here")


def test_commands_are_listed_and_completed(chat: Any) -> None:
    screen = chat(["ok"])
    screen.types("/st")
    screen.shows("/status  model, sandbox")
    screen.types(ENTER)
    screen.sees("  session    ", "  model      gpt-5.5")
    says(screen, "/nope")
    screen.sees("there is no command /nope")
    screen.types("/")
    screen.shows("› /help         the", "  /approvals    when", f"1 of {len(COMMANDS)}")
    screen.types("\x1b[A")
    screen.shows("› /quit", f"{len(COMMANDS)} of {len(COMMANDS)}")
    screen.types("\x15/ew")
    screen.shows("› /new")
    screen.types("\x15/")
    screen.shows(f"1 of {len(COMMANDS)}")
    screen.types("\x7f")
    screen.lacks("/approvals    when")
    screen.types("/help" + ENTER)
    screen.sees("  Esc           stops the model; Esc Esc goes back")
    screen.types("/quit" + ENTER)
    assert screen.ends() == 0


def test_escape_and_a_command_may_come_in_one_moment(chat: Any) -> None:
    """Failed before: Esc and the slash were Alt-/, and "quit" was sent to the model."""
    screen = chat(["never asked"])
    screen.types("\x1b/quit" + ENTER)
    assert screen.ends() == 0
    assert "never asked" not in screen.text


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_plan_at_work_is_there_once(chat: Any, desk: Any) -> None:
    """Failed before: each change of it stood above the live part, and the last in that, too."""
    os.mkfifo(desk.workspace / "gate")

    def plan(status: str) -> Call:
        return Call("update_plan", {"plan": [{"step": "the only step", "status": status}]})

    command = Call("exec_command", {"cmd": "echo started; read x < gate", "login": False})
    screen = chat([plan("pending"), [plan("in_progress"), command], "done for now"])
    says(screen, "go")
    screen.shows("  started", "▸ the only step")
    assert screen.text.count("the only step") == 1
    with open(desk.workspace / "gate", "w") as gate:
        gate.write("on\n")
    screen.sees("done for now", "Worked for")
    screen.until(lambda: screen.text.count("the only step") == 1, "once above")
    assert screen.text.index("done for now") < screen.text.index("the only step")


@pytest.mark.slow
def test_tries_to_reach_the_model_are_no_lines_of_their_own(chat: Any) -> None:
    screen = chat([Fail(500), Fail(500), Fail(500), "at last"])
    says(screen, "go")
    screen.sees("! Server error; trying again now (1 of 5)", "HTTP 500", "at last", "Worked for")
    screen.lacks("(3 of 5)")
    assert screen.text.count("trying again") == 1


@pytest.mark.slow
def test_a_session_is_resumed(chat: Any) -> None:
    screen = chat(["the first answer", "the second answer"])
    says(screen, "remember me")
    screen.sees("the first answer", "Worked for")
    screen.types(CTRL_D)
    assert screen.ends() == 0
    assert re.search(r"this session goes on with: toolrest resume [0-9a-f]{8}", screen.now)
    assert "context left" not in screen.now, "the live part is gone"
    other = chat.again("resume", "--last")
    other.sees("goes on; its last messages:", "> remember me", "the first answer")
    says(other, "and now?")
    other.sees("the second answer")


@pytest.mark.needs("sandbox")
def test_a_patch_is_shown_and_undone(chat: Any, desk: Any) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    screen = chat([Freeform("apply_patch", patch), "patched"], "chat", "-s", "workspace-write")
    says(screen, "go")
    screen.sees("Added  new.txt  +1", "1 +hello", "patched", "Worked for")
    assert (desk.workspace / "new.txt").exists()
    screen.types("/undo" + ENTER)
    screen.sees("remove new.txt")
    screen.until(lambda: not (desk.workspace / "new.txt").exists())


# The terminal afterwards


def settings(screen: Screen) -> Any:
    return termios.tcgetattr(screen.master)[:4]


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "Ctrl-D", "Ctrl-C twice"])
def test_the_terminal_is_as_before(chat: Any, how: str) -> None:
    """claude-code#84029."""
    screen = chat(["ok"])
    raw = settings(screen)
    if how.startswith("SIG"):
        screen.process.send_signal(signal.Signals[how])
        code = 128 + signal.Signals[how]
    else:
        screen.types(CTRL_D if how == "Ctrl-D" else CTRL_C)
        if how == "Ctrl-C twice":
            screen.shows("Ctrl-C again")
            screen.types(CTRL_C)
        code = 0
    assert screen.ends() == code
    after = settings(screen)
    assert after[3] & termios.ECHO
    assert after[3] & termios.ICANON
    assert raw != after
    assert screen.raw.rfind(b"\x1b[?2004l") > screen.raw.rfind(b"\x1b[?2004h")
    assert screen.raw.rfind(b"\x1b[?25h") > screen.raw.rfind(b"\x1b[?25l")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_crashed_chat_leaves_a_session_that_goes_on(chat: Any) -> None:
    call = Call("exec_command", {"cmd": "echo started; sleep 1000", "login": False})
    screen = chat([call, "I am back"])
    says(screen, "go")
    screen.shows("  started")
    os.killpg(screen.process.pid, signal.SIGKILL)
    screen.process.wait(60)
    other = chat.again("resume", "--last")
    other.sees("> go", "echo started")
    says(other, "and now?")
    other.sees("I am back")


@pytest.mark.slow
def test_an_idle_chat_does_nothing(chat: Any) -> None:
    """Idle CPU 0 (claude-code#19393): not one byte, and no time."""
    screen = chat(["ok"])
    says(screen, "hello")
    screen.sees("Worked for")
    screen.until(lambda: _is_idle(screen), "it rests")


def _is_idle(screen: Screen) -> bool:
    """Whether a second passes without a byte and without a tick of the clock."""
    size, before, until = len(screen.raw), _cpu(screen.process.pid), time.monotonic() + 1
    while time.monotonic() < until:
        screen.read(until - time.monotonic())
    return len(screen.raw) == size and _cpu(screen.process.pid) == before


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_without_colours_there_are_none(chat: Any) -> None:
    screen = chat([[Say("a **bold** word")]], NO_COLOR="1")
    says(screen, "hello")
    screen.sees("a bold word", "Worked for")
    assert b"\x1b[3" not in screen.raw.replace(b"\x1b[39", b"")


@pytest.mark.slow
def test_a_chat_that_fails_restores_the_terminal_and_says_so(chat: Any, desk: Any) -> None:
    chat([[Say("it is drawn meanwhile", chunks=4, seconds=2.0)]])
    broken = (
        "import sys; from toolrest.chat.live import LiveState\n"
        "real = LiveState.lines\n"
        "def lines(self, room, width):\n"
        "    if self.began: raise ZeroDivisionError('for a test')\n"
        "    return real(self, room, width)\n"
        "LiveState.lines = lines; sys.argv = ['toolrest']\n"
        "from toolrest.cli.entry import main; main()\n"
    )
    with Screen([sys.executable, "-c", broken], cwd=desk.workspace) as screen:
        screen.sees(READY)
        says(screen, "hello")
        assert screen.ends() == 2
        assert "toolrest resume" in screen.text
        assert "ZeroDivisionError: for a test" in screen.text
        assert "Traceback" not in screen.text
        assert settings(screen)[3] & termios.ECHO


@pytest.mark.slow
def test_the_chat_starts_with_a_message_and_goes_on_without_being_named(
    chat: Any, desk: Any
) -> None:
    screen = chat(["the first answer", "the second", "the third"], "-C", str(desk.workspace))
    screen.types(CTRL_D)
    for words, answer in (
        (["say one thing"], "the first answer"),
        (["--continue", "say another"], "the second"),
        (["-m", "gpt-5.5", "--", "now", "say", "it"], "the third"),
    ):
        again = chat.again(*words)
        again.sees(answer, "Worked for")
        assert ("the first answer" in again.text) == (answer != "the third")
        again.types(CTRL_D)
        assert again.ends() == 0
    picked = chat.begin("--resume")
    picked.sees("Session [1]:", "now say it")


# Other ways to talk and to look


def test_the_plain_chat_redraws_nothing(chat: Any, desk: Any) -> None:
    """For screen readers (claude-code#11002): lines only, labels in words."""
    screen = chat(["one answer", "another"])
    with Screen([TOOLREST, "--plain"], cwd=desk.workspace) as plain:
        plain.sees("you:")
        plain.types("hello\n")
        plain.sees("one answer", "tokens in")
        plain.types("again\n")
        plain.sees("another")
        plain.types("/quit\n")
        assert plain.ends() == 0
        assert b"\x1b[" not in plain.raw
    screen.types(CTRL_D)


def test_reasoning_is_one_line_when_it_is_done(chat: Any) -> None:
    screen = chat([[Think("first thought\nsecond thought\n" + "long " * 100), "the answer"]])
    says(screen, "go")
    screen.sees("first thought … 2 more lines", "the answer")
    assert "second thought" not in screen.text
    screen.types(CTRL_D)


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_slash_commands_of_the_plain_chat_are_no_messages(chat: Any, desk: Any) -> None:
    call = Call("write_file", {"path": "made.txt", "content": "x"})
    chat([call, "it is made", "a path"])
    made = desk.workspace / "made.txt"
    words = [TOOLREST, "chat", "--plain", "-s", "workspace-write", "go"]
    with Screen(words, cwd=desk.workspace) as plain:
        plain.sees("it is made", "you:")
        assert made.exists()
        plain.types("/help\n")
        plain.sees("/undo: take back what the last turn changed")
        plain.types("/fork\n")
        plain.sees("the plain chat has no /fork")
        plain.types("/undo\n")
        plain.sees("remove made.txt")
        assert not made.exists()
        plain.types("/etc/hosts is what?\n")
        plain.sees("a path")
        plain.types("/quit\n")
        assert plain.ends() == 0


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_the_plain_chat_asks(chat: Any, desk: Any) -> None:
    arguments = {"cmd": "true", "login": False, "sandbox_permissions": "require_escalated"}
    call = Call("exec_command", arguments | {"justification": "May I?"})
    chat([call, "then not"])
    with Screen([TOOLREST, "chat", "--plain", "go"], cwd=desk.workspace) as plain:
        plain.sees("Answer:")
        plain.types("n\n")
        plain.sees("You said no", "then not")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_session_is_replayed_without_running_anything(chat: Any, desk: Any) -> None:
    call = Call("exec_command", {"cmd": "echo once >> log; cat log", "login": False})
    screen = chat([call, "the end"], "chat", "-s", "workspace-write")
    says(screen, "go")
    screen.sees("the end", "Worked for")
    screen.types(CTRL_D)
    assert screen.ends() == 0
    session = json.loads(desk.run("sessions", "list", "--json").out)["id"]
    played = desk.run("replay", session, "--speed", "1000").out
    places = [played.find(text) for text in ("> go", "$ echo once", "  once", "the end")]
    assert -1 not in places
    assert places == sorted(places)
    assert (desk.workspace / "log").read_text() == "once\n"


def test_settings_change_in_the_middle(chat: Any) -> None:
    screen = chat(["one", "two"])
    says(screen, "hello")
    screen.sees("Worked for")
    says(screen, "/model gpt-6")
    screen.shows("Model: gpt-6")
    says(screen, "/sandbox nonsense")
    screen.sees("✗ ", "sandbox_mode")
    says(screen, "/sandbox workspace-write")
    screen.shows("Sandbox: workspace-write", "workspace-write · gpt-6")
    says(screen, "still there?")
    screen.sees("two")


def test_prompts_of_ones_own_are_commands(chat: Any, desk: Any) -> None:
    (desk.home / "prompts").mkdir()
    (desk.home / "prompts" / "review.md").write_text("Review $ARGUMENTS with care.\n")
    (desk.home / "prompts" / "odd.md").mkdir()
    screen = chat(["reviewed"])
    says(screen, "/odd")
    screen.sees("Is a directory")
    says(screen, "/review main.py")
    screen.sees("> Review main.py with care.", "reviewed")


@pytest.mark.slow
def test_without_its_extra_the_plain_chat_opens(chat: Any, desk: Any) -> None:
    chat(["one answer"])
    bare = (
        "import sys; sys.modules['prompt_toolkit'] = None; sys.argv = ['toolrest']\n"
        "from toolrest.cli.entry import main; main()\n"
    )
    with Screen([sys.executable, "-c", bare], cwd=desk.workspace) as screen:
        screen.sees("this is the plain chat", "you:")
        screen.types("hello\n")
        screen.sees("one answer")
        screen.types("/quit\n")
        assert screen.ends() == 0


def test_a_signal_ends_the_chat_behind_the_pager(chat: Any) -> None:
    """Failed before: the chat waited for the end of the pager."""
    screen = chat(["ok"])
    screen.pastes("x\n" * 50)
    screen.shows("[paste 1")
    screen.types(CTRL_O)
    screen.shows("q leaves")
    screen.process.send_signal(signal.SIGHUP)
    assert screen.ends() == 129
    assert settings(screen)[3] & termios.ECHO
    assert screen.raw.rfind(b"\x1b[?1049l") > screen.raw.rfind(b"\x1b[?1049h")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_what_was_sent_to_a_turn_outlives_it(chat: Any) -> None:
    """An interrupt and other settings: the message is shown until the model has it."""
    call = Call("exec_command", {"cmd": "echo started; sleep 1000", "login": False})
    screen = chat([call, "one", "two"])
    says(screen, "go")
    screen.shows("  started")
    says(screen, "remember this")
    screen.shows("next: remember this")
    screen.types(ESC)
    screen.sees("stopped after")
    screen.shows("next: remember this")
    says(screen, "/model gpt-6")
    screen.shows("queued: remember this", "gpt-6")
    says(screen, "hello")
    screen.sees("> hello", "one", "> remember this", "two")
    screen.lacks("queued: remember this")


def test_no_editor_is_started_from_where_tools_may_write(chat: Any, desk: Any) -> None:
    planted = desk.workspace / "bin" / "edit"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\ntouch ran\n")
    planted.chmod(0o755)
    screen = chat(["never asked"], EDITOR="edit", PATH=f"{planted.parent}:{os.environ['PATH']}")
    screen.types("\x07")
    screen.sees("where tools may write")
    assert not (desk.workspace / "ran").exists()


def planted(desk: Any, *names: str) -> dict[str, str]:
    """Programs that a tool has put first on PATH: each would leave a file `ran`."""
    folder = desk.workspace / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\ntouch {desk.workspace}/ran\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "LD_LIBRARY_PATH": f"{desk.workspace}/lib"}


@pytest.mark.slow
def test_an_editor_starts_and_loads_nothing_of_the_workspace(chat: Any, desk: Any) -> None:
    """Failed before: its `env` took the plant that is first on PATH, outside the sandbox."""
    editor = desk.home / "edit"
    editor.write_text(
        "#!/usr/bin/env python3\nimport os, subprocess, sys\n"
        "said = subprocess.run(['tool-of-the-editor'], shell=True, stderr=-3).returncode\n"
        "libraries = os.environ.get('LD_LIBRARY_PATH', 'without')\n"
        "text = open(sys.argv[1]).read() + f' and {said} {libraries}\\n'\n"
        "open(sys.argv[1], 'w').write(text)\n"
    )
    editor.chmod(0o755)
    variables = planted(desk, "python3", "sh", "tool-of-the-editor")
    screen = chat(["got it"], EDITOR=f"{editor}", VISUAL="", **variables)
    screen.types("my words")
    screen.shows("› my words")
    screen.types("\x07")
    screen.shows("› my words and 127 without")
    assert not (desk.workspace / "ran").exists()
    assert os.listdir(desk.home / "chat") == [], "the file of the message is gone"
    screen.types(ENTER)
    screen.sees("> my words and 127 without", "got it")


def test_a_file_of_the_workspace_is_no_word_of_the_editor(chat: Any, desk: Any) -> None:
    (desk.workspace / "edit.sh").write_text("touch ran\n")
    screen = chat(["never asked"], EDITOR="sh edit.sh", VISUAL="")
    screen.types("\x07")
    screen.sees("not started: edit.sh is where tools may write; set EDITOR")
    assert not (desk.workspace / "ran").exists()


def test_a_signal_ends_the_chat_behind_an_editor(chat: Any, desk: Any) -> None:
    screen = chat(["ok"], EDITOR="sh -c 'echo editing; exec sleep 1000'", VISUAL="")
    screen.types("\x07")
    screen.shows("editing")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.ends() == 143
    assert settings(screen)[3] & termios.ECHO


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_plain_chat_at_a_question(chat: Any, desk: Any, how: int) -> None:
    """Failed before: it died at once, and pastes stayed marked."""
    arguments = {"cmd": "true", "login": False, "sandbox_permissions": "require_escalated"}
    chat([Call("exec_command", arguments | {"justification": "May I?"}), "never said"])
    with Screen([TOOLREST, "chat", "--plain", "go"], cwd=desk.workspace) as plain:
        plain.sees("Answer:")
        plain.process.send_signal(how)
        assert plain.ends() == 128 + how
        assert settings(plain)[3] & termios.ECHO
        assert plain.raw.rfind(b"\x1b[?2004l") > plain.raw.rfind(b"\x1b[?2004h")
        assert "Traceback" not in plain.text


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_commands_terminal_is_as_wide_as_its_output_is_drawn(chat: Any) -> None:
    bar = "import os; print('.' * (os.get_terminal_size().columns - 1) + '|')"
    tty = {"cmd": f'python3 -c "{bar}"', "tty": True, "login": False}
    pipe = {"cmd": "python3 -c \"print('+' * 79 + '|')\"", "login": False}
    screen = chat([[Call("exec_command", tty), Call("exec_command", pipe)], "both ran"])
    says(screen, "run them")
    screen.sees("both ran", "Worked for")
    rows = screen.text.splitlines()
    assert " " * 9 + "." * 69 + "|" in rows
    assert "+" * 79 + "|" in rows, "80 columns are taken for granted off a terminal"


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_signal_ends_the_chat_behind_an_attached_command(chat: Any) -> None:
    """Failed before: it went on until Ctrl-]."""
    command = {"cmd": "echo started; cat", "tty": True, "login": False, "yield_time_ms": 500}
    screen = chat([Call("exec_command", command), "it goes on"])
    says(screen, "start it")
    screen.sees("it goes on", "Worked for")
    (number,) = re.findall(r"goes on in the background as (\d+)", screen.text)
    says(screen, "/ps ²")
    screen.sees("no command has the number ²")
    says(screen, f"/ps {number}")
    screen.shows("Ctrl-] leaves")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.ends() == 143
    assert settings(screen)[3] & termios.ECHO
    assert screen.raw.rfind(b"\x1b[?1049l") > screen.raw.rfind(b"\x1b[?1049h")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_the_status_line_says_what_runs_in_the_background(chat: Any) -> None:
    """And the live line what runs now."""
    command = {"cmd": "sleep 1000", "login": False, "yield_time_ms": 3000}
    screen = chat([Call("exec_command", command), "it goes on"])
    says(screen, "start it")
    screen.shows("Running sleep 1000 · ", "Esc stops")
    screen.sees("it goes on", "Worked for")
    screen.shows("read-only · gpt-5.5 · 100% context left · ◦ sleep 1000")
    says(screen, "/ps")
    (number,) = re.findall(r"goes on in the background as (\d+)", screen.text)
    says(screen, f"/ps kill {number}")
    screen.sees(f"{number} was ended")
    screen.lacks("◦ sleep 1000")


def test_a_narrow_status_line_says_less(chat: Any) -> None:
    screen = chat(["ok"], size=(15, 37))
    screen.shows("read-only · gpt-5.5 · 100% left")
    assert "Ask anything" not in screen.now, "it would not fit"
