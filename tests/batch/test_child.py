"""The processes of sessions and checks: what they print, and how they are ended."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolrest.batch import child as child_module
from toolrest.batch.child import run_child


async def test_a_line_that_is_too_long_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child_module, "_LONGEST_LINE", 16)
    lines: list[bytes] = []
    words = ["exec", "--help"]
    end = await run_child(words, cwd=str(tmp_path), env=os.environ, on_line=lines.append)
    assert end.exit_code == 0
    assert lines


async def test_output_without_lines_comes_in_pieces(tmp_path: Path) -> None:
    """A check may print gigabytes before its first newline."""
    pieces: list[bytes] = []
    code = "import sys; sys.stdout.write('x' * 3_000_000)"
    words = ["sandbox", "-s", "danger-full-access", "--", sys.executable, "-c", code]
    end = await run_child(words, cwd=str(tmp_path), env=os.environ, on_line=pieces.append)
    assert (end.exit_code, sum(map(len, pieces))) == (0, 3_000_000)
    assert max(map(len, pieces)) <= child_module._PIECE


async def test_nobody_takes_the_exit_status_of_a_session_that_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C ends it at the same moment, and the thread that waits for it would find nothing."""
    polls: list[object] = []
    made: list[asyncio.subprocess.Process] = []
    is_there = asyncio.Event()

    def started(process: asyncio.subprocess.Process) -> None:
        made.append(process)
        is_there.set()

    words = ["sandbox", "-s", "danger-full-access", "--", "sleep", "1000"]
    running = asyncio.create_task(
        run_child(words, cwd=str(tmp_path), env=os.environ, started=started)
    )
    await is_there.wait()
    monkeypatch.setattr(subprocess.Popen, "poll", polls.append)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert made[0].returncode
    assert polls == []


async def test_a_session_that_is_cancelled_while_it_starts_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is waited for, so that nobody else finds a child that nobody knows."""
    create, made = asyncio.create_subprocess_exec, list[asyncio.subprocess.Process]()
    is_starting = asyncio.Event()

    async def slow(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        made.append(await create(*words, **options))
        is_starting.set()
        await asyncio.sleep(0)
        return made[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    running = asyncio.create_task(run_child(["exec", "-"], cwd=str(tmp_path), env=os.environ))
    await is_starting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert made[0].returncode is not None
    assert caplog.messages == []
