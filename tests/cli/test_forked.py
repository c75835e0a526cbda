"""A command in a fork is what a process of its own is: the other tests rely on it."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from tests import forked

TOOL = """
import os, signal, sys, threading
from toolrest import tool

@tool(mutating=False)
def state() -> str:
    "Tells what a process can have from the one that started it."
    links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
    files = [os.readlink(link) for link in links if os.path.lexists(link)]
    mask = os.umask(0o22)
    os.umask(mask)
    return repr({
        "argv": sys.argv,
        "path": sys.path,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "files": sorted(os.path.dirname(file) or file.partition(":")[0] for file in files),
        "standard": [(f.isatty(), f.encoding, f.errors, f.line_buffering, f.seekable())
                     for f in (sys.stdin, sys.stdout, sys.stderr)],
        "signals": {n: repr(signal.getsignal(n)).partition(" at ")[0] for n in range(1, 32)},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "umask": mask,
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "group": (os.getpgrp(), os.getsid(0), os.nice(0), os.getuid(), os.getgroups()),
    })
"""


def test_it_has_the_state_of_a_new_process(desk: Any) -> None:
    folder = desk.home / "tools"
    folder.mkdir(mode=0o700)
    (folder / "state.py").write_text(TOOL)
    (folder / "state.py").chmod(0o600)
    words = ("call", "-c", "tool_result_max_chars=100000", "state")
    forked, new = desk.run(*words), desk.process(*words)
    assert (forked.code, forked.err) == (new.code, new.err)
    was, now = (ast.literal_eval(ran.out) for ran in (new, forked))
    assert now == was


@pytest.mark.parametrize("said", [None, '{"file_path": "hello.txt"}'])
def test_it_ends_and_is_spoken_to_like_one(desk: Any, said: str | None) -> None:
    (desk.workspace / "hello.txt").write_text("hello\n")
    words = ("call", "read_file", "-" if said else "{}")
    assert desk.run(*words, said=said) == desk.process(*words, said=said)


def test_what_counts_while_a_process_starts_gives_a_new_one(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "nonsense")
    assert "Invalid -W option" in desk.run("--version").err


@pytest.mark.slow
def test_what_is_forked_is_begun_anew_when_it_was_killed(desk: Any) -> None:
    """A test that hangs is ended with all processes below the one that runs the tests."""
    assert desk.run("--version").code == 0
    forked._begin().process.kill()
    forked._begin().process.wait()
    assert desk.run("--version").code == 0
