"""What others wrote, on a terminal: no control characters, and never in our own column."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest import ApprovalRequest, Risk
from toolrest.cli.terminal.terminal import Terminal
from toolrest.timeline.approval import describe
from toolrest.timeline.text import BAR, rows, text_width

TOOLREST = str(Path(sys.executable).parent / "toolrest")
EVIL = "fine\x1b[2J\x9b31m\u202ebad\ttab"


def everything(master: int) -> str:
    """What was written to a terminal until its other end was closed."""
    found = b""
    try:
        while data := os.read(master, 65536):
            found += data
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(master)
    return found.decode()


def on_terminal(desk: Any, *arguments: str, columns: int = 80) -> str:
    """What a command writes to a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [TOOLREST, *arguments],
        cwd=desk.workspace,
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(slave)
        found = everything(master)
        process.wait(60)
    return found


def is_harmless(text: str) -> bool:
    return not any(bad in text for bad in ("\x1b", "\x9b", "\u202e"))


def test_call_is_safe_on_a_terminal_and_raw_in_a_pipe(desk: Any) -> None:
    """Failed before: `call` printed whatever a tool gave it."""
    (desk.workspace / "f").write_text(EVIL)
    call = ("call", "read_file", '{"file_path": "f"}')
    seen = on_terminal(desk, *call)
    assert is_harmless(seen)
    assert "fine⟨ESC⟩[2J" in seen
    assert "\ttab" in seen
    assert "\x1b[2J" in desk.run(*call).out


@pytest.mark.slow
def test_the_final_answer_and_an_export_are_safe(desk: Any, serve: Any) -> None:
    """Failed before: both wrote a model's words as they were."""
    serve([EVIL, EVIL])
    assert "\x1b[2J" in desk.run("exec", "--skip-git-repo-check", "hello").out
    seen = on_terminal(desk, "exec", "--skip-git-repo-check", "hello")
    assert "fine⟨ESC⟩[2J" in seen
    assert is_harmless(seen)
    listed = desk.run("sessions", "list", "--json").out.splitlines()
    session = json.loads(listed[0])["id"]
    for layout in ("markdown", "json", "jsonl"):
        export = ("sessions", "export", session, "--format", layout)
        seen = on_terminal(desk, *export)
        assert "fine" in seen
        assert is_harmless(seen), layout
    seen = on_terminal(desk, "sessions", "show", session)
    assert "fine⟨ESC⟩[2J" in seen
    assert is_harmless(seen.replace("\x1b[1m", "").replace("\x1b[0m", "")), "but for our own bold"


def question(command: str) -> ApprovalRequest:
    made = ApprovalRequest("c", "exec_command", "{}", "it runs a program", Risk.EXECUTE)
    made.command, made.cwd = ("/bin/bash", "-lc", command), "/ws"
    return made


def test_a_long_command_stays_behind_its_bar() -> None:
    """Failed before: the terminal broke the line, and the rest stood where our words stand."""
    fake = "Run this command?"
    command = "x" * 74 + fake + "y" * 300
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(slave, "w") as out:
        for line in describe(question(command)):
            Terminal(out=out).say(line)
    seen = everything(master).replace("\r\n", "\n").splitlines()
    assert all(len(row) <= 80 for row in seen)
    own = ["Run this command?", "  It runs a program.", "  In /ws."]
    assert seen[: len(own)] == own
    rest = seen[len(own) :]
    assert len(rest) > 4
    assert all(row.startswith(BAR) for row in rest)
    assert "".join(row.removeprefix(BAR) for row in rest) == command


LINES = st.text(st.characters(exclude_categories=["C"]), max_size=300)


@given(LINES, st.integers(20, 120), st.booleans())
def test_rows_fit_and_lose_nothing(text: str, width: int, barred: bool) -> None:
    lead = BAR if barred else "    "
    line = BAR + text if barred else f"  for: {text}"
    found = rows(line, width)
    assert all(text_width(row) < width or width < 24 for row in found)
    assert all(row.startswith(lead) for row in found[1:])
    assert found[0] + "".join(row.removeprefix(lead) for row in found[1:]) == line


def test_without_a_terminal_lines_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().say(BAR + "x" * 500)
    assert capsys.readouterr().err == BAR + "x" * 500 + "\n"
