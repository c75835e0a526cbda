"""Commands of the person's own: `!line`, run at once in their terminal, when it was typed."""

from __future__ import annotations

import json
import os
import signal
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from tests.chat.test_chat import CTRL_C, ENTER, says, settings
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.chat.composer.typed import TypedText
from toolrest.testing import Call

MARK = "<user_shell_command>"
NOT_RUN = "Not run: type a ! line yourself"


def own(screen: Screen, line: str) -> None:
    """Type a command, and press Enter once it is there."""
    screen.types(f"!{line}")
    screen.shows(f"› !{line}"[:60])
    screen.types(ENTER)
    screen.lacks(f"› !{line}"[:60])


def told(serve: Any) -> str:
    """What the model was sent last."""
    return json.dumps(serve.servers[-1].requests[-1].body["input"])


def test_a_command_of_ones_own_is_shown_and_the_model_told(
    chat: Any, serve: Any, desk: Any
) -> None:
    """In the person's environment and folder, outside the sandbox; redacted for the model."""
    screen = chat(["I see it"], ANTHROPIC_API_KEY="sk-ant-a-secret-of-mine-0123456789")
    own(screen, "echo from $PWD; echo $ANTHROPIC_API_KEY; touch ../out; (exit 3)")
    screen.sees("! echo from $PWD", f"from {desk.workspace}"[:70], "✗ exit code 3")
    screen.sees("sk-ant-a-secret-of-mine-0123456789")
    assert (desk.workspace.parent / "out").exists(), "outside the sandbox"
    screen.shows("Ask anything")
    says(screen, "what did I run?")
    screen.sees("I see it")
    sent = told(serve)
    assert f"{MARK}\\n<command>\\necho from $PWD" in sent
    assert "Exit code: 3" in sent
    assert "sk-ant-a-secret" not in sent
    assert MARK not in screen.text, "the person has seen it already"
    assert screen.text.count("> what did I run?") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["paste", "mixed", "prompt", "editor", "history"])
def test_what_was_not_typed_is_not_run(chat: Any, desk: Any, serve: Any, how: str) -> None:
    ran = desk.workspace / "ran"
    line = "!touch ran"
    if how == "history":
        (desk.home / "chat").mkdir(mode=0o700)
        (desk.home / "chat" / "history.jsonl").write_text(json.dumps(line) + "\n")
    editor = desk.home / "editor"
    editor.write_text(f"#!/bin/sh\nprintf '{line}' > $1\n")
    editor.chmod(0o755)
    screen = chat(["ok"], *([line] if how == "prompt" else []), EDITOR=str(editor))
    if how == "paste":
        screen.pastes(line)
    elif how == "mixed":
        screen.pastes("!touch ra")
        screen.shows("› !touch ra")
        screen.types("n")
    elif how == "editor":
        screen.types("\x07")
    elif how == "history":
        screen.types("\x1b[A")
    if how != "prompt":
        screen.shows(f"› {line}")
        screen.types(ENTER)
        screen.shows(NOT_RUN)
        screen.types("\x01\x04" + ENTER)  # without the `!`
        screen.sees("> touch ran")
    screen.sees("ok", "Worked for")
    assert not ran.exists()
    assert "touch ran" in told(serve)


def test_text_with_its_enter_in_one_piece_waits_for_another_enter(chat: Any, desk: Any) -> None:
    """As a paste comes that says it is none."""
    screen = chat([])
    screen.types("!touch ran" + ENTER)
    screen.shows("Enter once more runs it")
    assert not (desk.workspace / "ran").exists()
    screen.types(ENTER)
    screen.until(lambda: (desk.workspace / "ran").exists(), "it ran")


def test_several_keys_at_once_are_a_paste_where_the_terminal_marks_none(
    chat: Any, desk: Any
) -> None:
    screen = chat(["ok"], TERM="vt220")
    screen.types("!touch ran")
    screen.shows("› !touch ran")
    screen.types(ENTER)
    screen.shows(NOT_RUN)
    screen.types("\x15")
    screen.lacks("› !")
    for number, char in enumerate("!touch ran", 1):
        screen.types(char)
        screen.until(lambda at=number + 2: screen.cursor[1] == at, char)
    screen.types(ENTER)
    screen.until(lambda: (desk.workspace / "ran").exists(), "it ran")


def test_what_was_typed_here_is_typed_when_it_comes_back(chat: Any, desk: Any) -> None:
    screen = chat([])
    own(screen, "echo once >> log")
    screen.until(lambda: (desk.workspace / "log").exists(), "it ran")
    screen.shows("Ask anything")
    screen.types("\x1b[A")
    screen.shows("› !echo once >> log")
    screen.types(ENTER)
    screen.until(lambda: (desk.workspace / "log").read_text() == "once\nonce\n", "again")


@pytest.mark.parametrize(
    ("steps", "typed"),
    [
        (["!", "!l", "!ls"], True),
        (["!", "!l", "!ls", "!l", "!la"], True),
        (["!ls", "!ls -l"], False),
        (["!", "!ls -l"], False),
        (["!", "!x", "!rm y", "!rm "], False),
        (["!", "!a", "", "!a"], True),
        (["x", "", "!", "!a"], True),
        (["!", "!a", "!aa", "!ba"], True),
        (["!", "!a", "!xyza", "!a"], True),
    ],
)
def test_only_keys_make_a_typed_line(steps: list[str], typed: bool) -> None:
    text = TypedText()
    for step in steps:
        text.follow(step)
    assert text.is_typed(steps[-1]) is typed


@pytest.mark.slow
def test_it_has_a_real_terminal_of_the_right_size(chat: Any, desk: Any) -> None:
    """Ctrl-C, the size, also after a change, and keys are its own; the modes come back."""
    program = desk.workspace / "program"
    program.write_text(
        f"#!{sys.executable}\nimport os, signal\n"
        "def size(*_): print(*os.get_terminal_size(), flush=True)\n"
        "signal.signal(signal.SIGWINCH, size)\n"
        "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
        "print('a terminal', all(map(os.isatty, (0, 1, 2))))\n"
        "size()\n"
        "print('got', input())\nprint('then', input())\n"
    )
    program.chmod(0o755)
    screen = chat([])
    before = settings(screen)
    own(screen, "./program")
    screen.sees("a terminal True\n80 24")
    screen.types("hello\n")
    screen.sees("got hello")
    screen.resizes(20, 70)
    screen.sees("70 20")
    screen.types(CTRL_C)
    screen.sees("interrupted")
    screen.types("more\n")
    screen.sees("then more")
    screen.shows("Ask anything")
    assert settings(screen) == before


@pytest.mark.slow
def test_a_program_that_dies_leaves_the_terminal_as_it_was(chat: Any, serve: Any) -> None:
    screen = chat(["I see"])
    before = settings(screen)
    own(screen, r"printf '\033[?1049h\033[?1000h\033[?25l\033[31mdrawn'; stty raw; kill -9 $$")
    screen.sees("✗ signal 9")
    for mode in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?25h"):
        assert mode in screen.raw
    assert settings(screen) == before
    says(screen, "hello")
    screen.sees("I see")
    assert "drawn" not in told(serve).partition("Output:")[2], "what a screen was is no output"


@pytest.mark.slow
def test_it_runs_at_once_while_the_model_works(chat: Any, desk: Any) -> None:
    os.mkfifo(desk.workspace / "gate")
    call = Call("exec_command", {"cmd": "echo held; cat gate", "login": False})
    screen = chat([call, "the answer"])
    says(screen, "go")
    screen.shows("  held")
    own(screen, "echo on > gate; echo opened")
    screen.sees("opened", "the answer", "Worked for")


@pytest.mark.slow
@pytest.mark.parametrize(("line", "external"), [("ls", False), ("./fetch", True)])
def test_a_plain_read_is_not_external(chat: Any, desk: Any, line: str, external: bool) -> None:
    """After external content a call that sends is asked about; after `!ls` it is not."""
    (desk.workspace / "fetch").write_text("#!/bin/sh\necho fetched\n")
    (desk.workspace / "fetch").chmod(0o755)
    sends = Call("exec_command", {"cmd": "curl -sS http://127.0.0.1:9/", "login": False})
    settings_ = "[sandbox_workspace_write]\nnetwork_access = true\n"
    words = ("chat", "-s", "workspace-write")
    screen = chat([sends, "sent"], *words, settings=settings_)
    own(screen, line)
    screen.sees("\nfetch")
    screen.shows("Ask anything")
    says(screen, "send it")
    if external:
        screen.shows("No, and say what to do", "a command of the user")
    else:
        screen.sees("sent", "Worked for")
        assert "say what to do" not in screen.text


@pytest.mark.slow
def test_ctrl_z_stops_the_chat_with_it_and_both_go_on(chat: Any, desk: Any) -> None:
    screen = chat([], program=("bash", "-ic", f"{TOOLREST}; echo shell; fg; echo over"))
    own(screen, "echo up; cat")
    screen.sees("\nup")
    screen.types("\x1a")
    screen.sees("shell")
    screen.types("two\n")
    screen.until(lambda: screen.text.count("two") >= 2, "cat goes on")
    screen.types("\x04")
    screen.shows("Ask anything")
    screen.types("\x04")
    screen.sees("over")


@pytest.mark.slow
def test_the_command_ends_with_the_chat(chat: Any, desk: Any) -> None:
    screen = chat([])
    own(screen, "echo $$ > pid; exec sleep 1000")
    pid = desk.workspace / "pid"
    screen.until(lambda: pid.exists() and pid.read_text().strip(), "it runs")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.ends() == 143
    stat = Path("/proc", pid.read_text().strip(), "stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "XZ"
    assert settings(screen)[3] & termios.ECHO


@pytest.mark.slow
def test_what_is_typed_ahead_comes_into_the_line(chat: Any, desk: Any) -> None:
    """And is neither sent nor run, whatever it is."""
    os.mkfifo(desk.workspace / "gate")
    screen = chat([])
    own(screen, "echo up; cat gate")
    screen.sees("\nup")
    screen.types("!touch ran\n")
    screen.sees("!touch ran")
    with open(desk.workspace / "gate", "w") as gate:
        gate.write("on\n")
    screen.shows("› !touch ran")
    screen.types(ENTER)
    screen.shows(NOT_RUN)
    assert not (desk.workspace / "ran").exists()
