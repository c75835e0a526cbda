"""What users of other terminal agents asked for, and no other test here shows.

docs/chat.md has the whole list, with the test of each row.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from tests.chat.conftest import READY
from tests.chat.test_approvals import denies, outside
from tests.cli.conftest import Desk
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.testing import Call, Freeform, Reply, Say
from toolrest.testing.server import ScriptedServer

DOCS = Path(__file__).parents[2] / "docs" / "chat.md"
MOUSE = (b"?9h", b"?1000h", b"?1001h", b"?1002h", b"?1003h", b"?1005h", b"?1006h", b"?1015h")
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
SPOKEN = "日本語 ⚠️ 👩‍👩‍👧 שלום עולם مرحبا می‌خواهم café"
QUESTION, ANSWER = "please do it", "It is **done**."


class Story:
    """A session with everything in it: what was written to the terminal, and what it shows."""

    raw = b""
    text = ""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One session that several tests look at; it is ended before they do."""
    desk = Desk(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work"))
    # On a busy machine its end may come after the usual ten seconds, and be no part of the answer.
    line = "echo half a line; kill -9 $$"
    command = {"cmd": line, "login": False, "yield_time_ms": 30_000}
    script: list[Any] = [
        Call("exec_command", command),
        outside(),
        Freeform("apply_patch", PATCH),
        SPOKEN,
    ]
    with ScriptedServer(script) as server:
        desk.provider(server)
        argv = [TOOLREST, "chat", "-s", "workspace-write"]
        # Without SHLVL bash may take itself for a remote login, and read ~/.bashrc.
        env = {"TOOLREST_HOME": str(desk.home), "VTE_VERSION": "", "SHLVL": "1"}
        with Screen(argv, cwd=desk.workspace, env=env) as screen:
            screen.sees(READY)
            screen.types(f"{QUESTION}\r")
            screen.shows("1. Yes")
            denies(screen)
            screen.sees("日本語", "Worked for")  # pyte stops at the first joiner
            found = Story()
            found.text = screen.text
            screen.types("\x0f")
            screen.shows("q leaves", "new.txt", "hello")
            screen.types("q")
            screen.lacks("q leaves")
            screen.types("/quit\r")
            assert screen.ends() == 0
            found.raw = screen.raw
    return found


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_the_mouse_stays_the_terminals(story: Story) -> None:
    """No mouse capture, in the pager neither (mistralai/mistral-vibe#41)."""
    assert not [mode for mode in MOUSE if b"\x1b[" + mode in story.raw]


@pytest.mark.needs("sandbox")
def test_something_that_waits_calls_the_person_once(story: Story) -> None:
    """A bell and a notification; none at the end of a turn of seconds (claude-code#36850)."""
    assert story.raw.count(b"\x1b]9;toolrest waits for you\x07") == 1
    before, after = story.raw.split(b"\x1b]9;", 1)
    assert before.endswith(b"\x07"), "the bell"
    assert b"outside the sandbox?" in after
    assert b"1. Yes" not in before


@pytest.mark.needs("sandbox")
def test_colours_are_the_terminals_own(story: Story) -> None:
    """Light or dark: only the palette's sixteen, and no background."""
    codes = {
        code for found in re.findall(rb"\x1b\[([\d;]*)m", story.raw) for code in found.split(b";")
    }
    numbers = {int(code or 0) for code in codes}
    assert numbers & {31, 32, 33, 36}, "there are colours"
    assert not numbers & {38, 48, *range(40, 48), *range(100, 108)}


@pytest.mark.needs("sandbox")
def test_wide_joined_and_right_to_left_text_is_written_as_it_is(story: Story) -> None:
    assert SPOKEN.encode() in story.raw
    assert "日本語" in story.text


@pytest.mark.needs("sandbox")
def test_a_killed_command_leaves_the_chat_as_it_is(story: Story) -> None:
    """kill -9 of the child: its output and its end are shown, and the turn goes on."""
    wanted = ("exit 137", "  half a line", "new.txt  +1")
    found = [story.text.find(text) for text in wanted]
    assert -1 not in found, story.text
    assert found == sorted(found), story.text


def test_a_pasted_newline_does_not_submit(chat: Any) -> None:
    """openai/codex#2006: however the newline is spelled, and at the very end, too."""
    screen = chat(["got it"])
    screen.pastes("one\rtwo\r\nthree\nfour\n")
    screen.shows("› one", "  four")
    screen.types("five")
    screen.shows("  five")
    assert "got it" not in screen.text
    screen.types("\r")
    screen.sees("> one\n  two\n  three\n  four\n  five", "got it")


@pytest.mark.slow
def test_what_is_typed_while_it_starts_is_sent(chat: Any) -> None:
    """Keys between the first paint and the first frame used to lose their Enter."""
    chat(["first", "second"])
    screen = chat.begin(program=(sys.executable, "-m", "toolrest"))
    screen.until(lambda: "›" in screen.now)
    screen.types("typed early\r")
    screen.sees("> typed early", "first")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_first_paint_is_taken_back(desk: Any, how: signal.Signals) -> None:
    """Ended before the chat is loaded, it leaves a terminal that echoes."""
    slow = (
        "import sys, time; sys.argv = ['toolrest']\n"
        "import toolrest.process.helper.kernel as kernel\n"
        "kernel.hide_memory = lambda: time.sleep(1000)\n"
        "from toolrest.cli.entry import main; main()\n"
    )
    with Screen([sys.executable, "-c", slow], cwd=desk.workspace) as screen:
        screen.shows("›")
        assert not termios.tcgetattr(screen.master)[3] & termios.ECHO
        screen.process.send_signal(how)
        assert screen.ends() == (-how if how == signal.SIGTERM else 130)
        assert termios.tcgetattr(screen.master)[3] & termios.ECHO
        assert screen.now.strip() == ""


@pytest.mark.long
def test_a_key_costs_the_same_after_ten_thousand_cells(chat: Any) -> None:
    """openai/codex#24527: neither bytes nor CPU of a key grow with what was said before."""
    cells = Reply([Say(f"message {n}", chunks=1) for n in range(2500)])
    screen = chat([cells] * 4)
    before = _cost_of_keys(screen)
    for turn in range(1, 5):
        screen.types("go\r")
        screen.until(lambda: screen.raw.count(b"Worked for") == turn)  # noqa: B023
    screen.shows("Worked for")
    size, seconds = _cost_of_keys(screen)
    assert size <= before[0] + 8
    assert seconds <= 3 * before[1] + 0.05


def _cost_of_keys(screen: Screen) -> tuple[int, float]:
    """Bytes and CPU seconds of forty keys, each of them on the screen before the next one."""
    start, before = len(screen.raw), _cpu(screen.process.pid)
    for count in range(1, 41):
        screen.types("x")
        screen.shows("› " + "x" * count)
    found = len(screen.raw) - start, _cpu(screen.process.pid) - before
    screen.types("\x15")
    screen.lacks("› x")
    return found


def _cpu(pid: int) -> float:
    """Seconds on a CPU, of all threads."""
    tasks = os.listdir(f"/proc/{pid}/task")
    times = (Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0] for task in tasks)
    return sum(map(int, times)) / 1e9


def test_each_behaviour_has_its_test() -> None:
    """The table of docs/chat.md names tests that exist, twenty rows or more."""
    named = re.findall(r"^\| [^|]+ \| `(test_\w+)\.py::(test_\w+)` \|", DOCS.read_text(), re.M)
    for file, name in named:
        assert f"def {name}(" in (Path(__file__).parent / f"{file}.py").read_text(), name
    assert len({name for _, name in named}) >= 20
