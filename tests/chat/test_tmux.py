"""The chat in a real tmux: resizes, scrollback, copying, job control."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chat.conftest import READY
from tests.forked import TOOLREST
from tests.screen import DEADLINE

from toolrest.chat.questions import QUIET
from toolrest.config.trust import distrust
from toolrest.testing import Call, Freeform

pytestmark = pytest.mark.needs("tmux")
LINES = "\n".join(f"line {n} of the answer" for n in range(80))


class Tmux:
    """One window of a tmux server of its own."""

    def __init__(
        self, folder: Path, program: str, cwd: Path, size: tuple[int, int] = (100, 24)
    ) -> None:
        self._socket = str(folder / "tmux")
        sizes = ("-x", str(size[0]), "-y", str(size[1]))
        self.run("new-session", "-d", "-s", "t", *sizes, "-c", str(cwd), program)

    def run(self, *words: str) -> str:
        argv = ["tmux", "-S", self._socket, "-f", "/dev/null", *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def types(self, *keys: str) -> None:
        self.run("send-keys", "-t", "t", *keys)

    @property
    def now(self) -> str:
        return self.run("capture-pane", "-t", "t", "-p")

    @property
    def text(self) -> str:
        """Everything, wrapped lines joined, as a person would copy it."""
        return self.run("capture-pane", "-t", "t", "-p", "-J", "-S", "-")

    def until(self, holds: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not holds():
            assert time.monotonic() < deadline, f"{what}\n{self.now}"
            time.sleep(0.02)

    def sees(self, text: str) -> None:
        self.until(lambda: text in self.text, text)

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.now, text)

    def resizes(self, columns: int, rows: int) -> None:
        self.run("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))


@pytest.fixture
def tmux(desk: Any, serve: Any, tmp_path: Path) -> Iterator[Callable[..., Tmux]]:
    started: list[Tmux] = []

    def start(script: Any, program: str = TOOLREST) -> Tmux:
        serve(script)
        distrust(desk.workspace)  # the answer "Read only": it is not asked again
        home = f"TOOLREST_HOME={shlex.quote(str(desk.home))}"
        started.append(Tmux(tmp_path, f"env {home} {program}", desk.workspace))
        return started[0]

    yield start
    for window in started:
        window.run("kill-server")


@pytest.mark.slow
def test_resizes_leave_no_rubbish(tmux: Any) -> None:
    """claude-code#49086: every line once, one composer, one footer, in whatever size."""
    window = tmux([LINES, "the end"])
    window.sees(READY)
    window.types("hello", "Enter")
    window.sees("Worked for")
    for size in ((70, 24), (100, 30), (50, 12), (90, 24), (60, 15), (100, 24)):
        window.resizes(*size)
        window.types("x")
        window.shows("› x")
        window.types("BSpace")
        window.until(lambda: "› x" not in window.now, "the x goes")
    window.types("again", "Enter")
    window.sees("the end")
    window.until(lambda: window.text.count("context left") == 1, "one footer")
    rows = window.text.splitlines()
    assert [row[2:] for row in rows if row[2:].startswith("line ")] == LINES.splitlines()
    assert sum(row.startswith("›") for row in rows) == 1


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_question_is_resized_cleanly(tmux: Any) -> None:
    """Rows that the terminal wraps anew are found and drawn over."""
    arguments = {
        "cmd": "echo " + "long " * 16 + "> ../outside",
        "login": False,
        "sandbox_permissions": "require_escalated",
        "justification": "May I do this? " * 5,
    }
    window = tmux([LINES, Call("exec_command", arguments)])
    window.sees(READY)
    window.types("hello", "Enter")
    window.sees("Worked for")
    window.types("go", "Enter")
    window.shows("1. Yes")
    for size in ((70, 24), (45, 24), (100, 24), (60, 24), (100, 24)):
        window.resizes(*size)
        window.types("x")
        window.shows("one moment")
        window.until(lambda: "one moment" not in window.now, "it is quiet again")
    once = ("outside the sandbox?", "No, and say what", "context left")
    window.until(lambda: all(window.text.count(words) == 1 for words in once), "drawn over")
    text = window.text
    assert [row[2:] for row in text.splitlines() if row[2:].startswith("line ")] == (
        LINES.splitlines()
    )


@pytest.mark.long
@pytest.mark.needs("sandbox")
def test_a_running_command_is_resized_cleanly(tmux: Any) -> None:
    """Rows that were longer before, and that tmux wraps as if they still were."""
    line = "for n in 1 2 3 4; do echo tick $n; sleep 0.3; done; sleep 60"
    command = Call("exec_command", {"cmd": line, "login": False, "yield_time_ms": 30_000})
    window = tmux([LINES, command])
    window.sees(READY)
    window.types("hello", "Enter")
    window.sees("Worked for")
    window.types("go", "Enter")
    window.shows("  tick 4")
    for size in ((40, 14), (100, 30), (60, 20), (45, 16), (80, 24)):
        window.resizes(*size)
        window.types("xx")
        window.shows("› xx")
        window.types("BSpace", "BSpace")
        window.until(lambda: "› x" not in window.now, "the x goes")
    window.types("Escape")
    window.sees("stopped after")
    once = ("Ran    for n in", "  tick 1", "  tick 4", "context left")
    window.until(lambda: all(window.text.count(words) == 1 for words in once), "drawn over")


def test_a_paragraph_is_copied_as_one_line(tmux: Any, tmp_path: Path) -> None:
    """On the screen its rows end between words; `/copy` has it as it was said.

    What the chat says it knows: whether a terminal allows that it is not told (opencode#50208).
    """
    words, written = " ".join(f"word{n}" for n in range(80)), tmp_path / "written"
    window = tmux([words])
    window.run("set-option", "-s", "set-clipboard", "on")
    window.sees(READY)
    window.run("pipe-pane", "-t", "t", "-o", f"cat > {shlex.quote(str(written))}")
    window.types("hello", "Enter")
    window.sees("Worked for")
    assert " ".join(window.text.split("●")[1].split()[:80]) == words
    assert "Copied" not in window.text
    assert b"\x1b]52" not in written.read_bytes()
    window.types("/copy", "Enter")
    window.sees("if your terminal allows that")
    window.until(lambda: window.run("show-buffer") == words, "tmux has it")


@pytest.mark.slow
def test_a_newline_key_works(tmux: Any) -> None:
    """codex#16121."""
    window = tmux(["got it"])
    window.sees(READY)
    window.types("one", "C-j", "two", "M-Enter", "three", "Enter")
    window.sees("got it")
    assert "> one\n  two\n  three\n" in window.text


@pytest.mark.slow
def test_the_chat_can_be_suspended(tmux: Any) -> None:
    """Ctrl-Z and fg (codex#37088)."""
    window = tmux(["before", "after"], "bash --norc --noprofile -i")
    window.types(f"PS1='shell> '; {TOOLREST}", "Enter")
    window.sees(READY)
    window.types("half a mess", "C-z")
    window.shows("Stopped")
    window.types("echo from the $((40 + 2)) shell", "Enter")
    window.shows("from the 42 shell")
    window.types("fg", "Enter")
    window.shows("› half a mess")
    window.types("age", "Enter")
    window.sees("> half a message")
    window.sees("before")
    window.types("C-d")
    window.until(lambda: window.now.rstrip().endswith("shell>"), "back in the shell")
    window.types("echo still $((1 + 1)) fine", "Enter")
    window.shows("still 2 fine")


def answers(window: Tmux, key: str) -> None:
    """Press a key once the question could be read: before, it is inert."""
    until = time.monotonic() + 2 * QUIET
    window.until(lambda: time.monotonic() > until, "")
    window.types(key)


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_whole_story(tmux: Any, desk: Any) -> None:
    """Question, live command, approval by key, diff, undo, quit, resume."""
    outside = {
        "cmd": "echo hi > ../outside",
        "login": False,
        "sandbox_permissions": "require_escalated",
        "justification": "May I?",
    }
    patch = "*** Begin Patch\n*** Add File: notes.txt\n+one\n+two\n*** End Patch\n"
    script = [
        Call("exec_command", {"cmd": "seq 3; echo ready", "login": False}),
        Call("exec_command", outside),
        Freeform("apply_patch", patch),
        "all done",
        "welcome back",
    ]
    story = f"{TOOLREST} chat -s workspace-write; {TOOLREST} resume"
    window = tmux(script, f"sh -c {shlex.quote(story)}")
    window.sees(READY)
    window.types("please", "Enter")
    window.sees("  ready")
    window.shows("1. Yes")
    answers(window, "y")
    window.until(lambda: (desk.workspace.parent / "outside").exists(), "it ran")
    window.sees("Added  notes.txt  +2")
    window.sees("all done")
    assert (desk.workspace / "notes.txt").exists()
    window.types("/undo", "Enter")
    window.until(lambda: not (desk.workspace / "notes.txt").exists(), "it is undone")
    window.types("/quit", "Enter")
    window.shows("Session [1]:")
    window.shows("please")
    window.types("Enter")
    window.sees("goes on; its last messages:")
    window.types("hello again", "Enter")
    window.sees("welcome back")
