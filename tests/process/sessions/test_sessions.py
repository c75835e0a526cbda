"""Interactive commands: waits, typing, interrupts, the table and its limits."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.clock import Clock

from toolrest.process import output_reader as running
from toolrest.process.command import Command
from toolrest.process.output import layout
from toolrest.process.owner import Owner
from toolrest.process.sessions import table as sessions
from toolrest.process.sessions.session import SessionEnd
from toolrest.process.sessions.table import (
    ExecResult,
    Sessions,
    StdinClosed,
    UnknownSession,
    clamp_exec,
    clamp_poll,
)

Sh = Callable[..., Command]


@pytest.fixture
async def table(owner: Owner) -> AsyncIterator[Sessions]:
    table = Sessions(owner)
    yield table
    await table.aclose()
    assert table.list() == ()


def number(result: ExecResult) -> int:
    assert result.session_id is not None, result
    return result.session_id


LONG = 30_000
"""The longest wait there is, in milliseconds: what is expected comes first, or the test ends it."""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A command waits for this file with `until_exists`."""
    return tmp_path / "go"


def until_exists(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.01; done"


async def until_ended(table: Sessions, session: int) -> None:
    """Wait until a session's command has ended, without asking it."""
    async with asyncio.timeout(60):
        while next(row for row in table.list() if row.session_id == session).exit_code is None:
            await asyncio.sleep(0.01)


@given(st.integers(-(10**9), 10**9))
def test_clamps(wanted: int) -> None:
    assert clamp_exec(wanted) == min(max(wanted, 250), 30_000)
    assert clamp_poll(wanted) == min(max(wanted, 5_000), 30_000)
    assert clamp_poll(wanted, 300_000) == min(max(wanted, 5_000), 300_000)


async def test_a_command_that_ends_in_time(table: Sessions, sh: Sh) -> None:
    began = time.monotonic()
    result = await table.exec(sh("echo out; echo err >&2; exit 4"))
    assert (result.state, result.exit_code, result.session_id) == ("exited", 4, None)
    assert result.text == "out\nerr\n"
    assert result.original_bytes == 8
    assert re.fullmatch("[0-9a-f]{6}", result.chunk_id)
    assert 0 < result.wall_time <= time.monotonic() - began
    assert table.list() == ()


async def test_the_layout_of_a_first_command(table: Sessions, sh: Sh) -> None:
    result = await table.exec(sh("echo hi"))
    text = layout.unified(
        result.text,
        chunk_id=result.chunk_id,
        wall_time=result.wall_time,
        original_bytes=result.original_bytes,
        exit_code=result.exit_code,
        session_id=result.session_id,
    )
    assert re.fullmatch(
        r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess exited with code 0\n"
        r"Original token count: 1\nOutput:\nhi\n",
        text,
    )


async def test_waits_end_with_the_command(table: Sessions, sh: Sh, go: Path, clock: Clock) -> None:
    line = f"echo a; {until_exists(go)}; echo b"
    first = await table.exec(sh(line), yield_ms=LONG, on_bytes=clock.once("a\n", 30))
    assert (first.state, first.text) == ("still_running", "a\n")
    assert 30 <= first.wall_time < 60
    assert 1000 <= number(first) <= 99_999
    go.touch()
    second = await table.write(number(first), yield_ms=LONG)
    assert (second.state, second.text, second.exit_code) == ("exited", "b\n", 0)
    assert second.wall_time < 30
    with pytest.raises(UnknownSession, match=f"^Unknown process id {first.session_id}$"):
        await table.write(number(first))


async def test_output_between_calls_is_kept(
    table: Sessions, sh: Sh, go: Path, clock: Clock
) -> None:
    line = f"echo 1; {until_exists(go)}; for i in 2 3 4; do echo $i; sleep 0.05; done"
    first = await table.exec(sh(line), yield_ms=LONG, on_bytes=clock.once("1\n", 30))
    go.touch()
    await until_ended(table, number(first))
    second = await table.write(number(first))
    assert (first.text, second.text, second.exit_code) == ("1\n", "2\n3\n4\n", 0)


async def test_death_by_signal(table: Sessions, sh: Sh) -> None:
    for tty in (False, True):
        result = await table.exec(sh("kill -9 $$", tty=tty))
        assert (result.state, result.exit_code, result.signal) == ("signaled", 137, 9)


async def test_what_cannot_start(table: Sessions, owner: Owner) -> None:
    result = await table.exec(Command(("nope",), "/", {"PATH": "/bin"}))
    assert result.state == "failed_to_start"
    assert result.error == "cannot run `nope`: No such file or directory (os error 2)"
    assert result.session_id is None


async def test_typing_needs_a_terminal(table: Sessions, sh: Sh) -> None:
    result = await table.exec(sh("sleep 900"), yield_ms=250)
    expected = (
        "stdin is closed for this session; rerun exec_command with tty=true to keep stdin open"
    )
    with pytest.raises(StdinClosed, match=f"^{re.escape(expected)}$"):
        await table.write(number(result), "hello\n")


async def test_interrupt_without_a_terminal(table: Sessions, sh: Sh, clock: Clock) -> None:
    line = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"
    result = await table.exec(sh(line), yield_ms=LONG, on_bytes=clock.once("ready\n", 30))
    ended = await table.write(number(result), "\x03", yield_ms=LONG)
    assert (ended.text, ended.exit_code) == ("caught\n", 7)


@pytest.mark.slow
async def test_typing_at_what_has_ended_gives_its_end(table: Sessions, sh: Sh, go: Path) -> None:
    for tty in (False, True):
        first = await table.exec(sh(f"{until_exists(go)}; exit 5", tty=tty), yield_ms=250)
        go.touch()
        await until_ended(table, number(first))
        go.unlink()
        ended = await table.write(number(first), "too late\n")
        assert (ended.state, ended.exit_code) == ("exited", 5)


def repl(tty: bool = True) -> Command:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    return Command(("python3", "-I", "-q", "-i"), "/", env, tty=tty)


@pytest.mark.slow
async def test_a_python_prompt(table: Sessions, clock: Clock) -> None:
    first = await table.exec(repl(), yield_ms=LONG)
    assert first.text.endswith(">>> ")
    assert first.waiting_for_input
    assert first.wall_time < 30, "a question ends the wait"
    session = number(first)
    assert "42\r\n" in (await table.write(session, "6 * 7\n", yield_ms=LONG)).text
    # Many short sleeps: Python itself can miss an interrupt in the moment before a long one.
    line = "import time; print(6 * 100); [time.sleep(0.05) for _ in range(10_000)]\n"
    busy = await table.write(session, line, yield_ms=LONG, on_delta=clock.once("600\r\n", 30))
    assert "600\r\n" in busy.text
    assert not busy.waiting_for_input
    broken = await table.write(session, "\x03", yield_ms=LONG)
    assert "KeyboardInterrupt" in broken.text
    assert "43\r\n" in (await table.write(session, "42 + 1\n", yield_ms=LONG)).text
    ended = await table.write(session, "\x04", yield_ms=LONG)
    assert (ended.state, ended.exit_code) == ("exited", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "waiting"),
    [
        ("read -p 'name? ' x", True),
        ("cat", True),
        ("sh -c 'read x'; :", True),
        ("python3 -c 'import select; select.select([0], [], [])'", True),
        ("python3 -c 'import select as s; p = s.poll(); p.register(0, s.POLLIN); p.poll()'", True),
        (
            "python3 -c 'import select as s; e = s.epoll(); e.register(0, s.EPOLLIN); e.poll()'",
            True,
        ),
        ("python3 -c 'open(\"/dev/tty\").read()'", True),
        ("sleep 900", False),
        ("read x < <(sleep 900)", False),
        ("cat </dev/zero >/dev/null", False),
        ("cat <(sleep 900) & wait", False),
        (
            "python3 -c 'import select, socket as s; l = s.socketpair(); "
            "select.select([0, l[0]], [], [])'",
            False,
        ),
    ],
)
async def test_waiting_for_input(table: Sessions, sh: Sh, line: str, waiting: bool) -> None:
    result = await table.exec(sh(line, tty=True), yield_ms=LONG if waiting else 600)
    assert (result.state, result.waiting_for_input) == ("still_running", waiting)
    await table.stop(number(result))


async def test_answers_and_control_keys_in_a_shell(table: Sessions, sh: Sh) -> None:
    line = "read -p 'name? ' x; echo got $x; cat; echo end"
    first = await table.exec(sh(line, tty=True), yield_ms=LONG)
    assert (first.text, first.waiting_for_input) == ("name? ", True)
    session = number(first)
    assert "got bob\r\n" in (await table.write(session, "bob\n", yield_ms=LONG)).text
    ended = await table.write(session, "more\n\x04", yield_ms=LONG)
    assert ended.text.endswith("more\r\nend\r\n")
    assert ended.exit_code == 0


async def test_the_terminal_is_real_and_can_be_resized(
    table: Sessions, sh: Sh, clock: Clock
) -> None:
    line = "tty; stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done"
    command = replace(sh(line, tty=True), rows=30, cols=100)
    first = await table.exec(command, yield_ms=LONG, on_bytes=clock.once("ready\r\n", 30))
    assert first.text.startswith("/dev/pts/")
    assert "\r\n30 100\r\nready\r\n" in first.text
    table.resize(number(first), 50, 132)
    ended = await table.write(number(first), yield_ms=LONG)
    assert ended.text == "50 132\r\n"


async def test_a_terminal_has_a_foreground_group(table: Sessions, sh: Sh, clock: Clock) -> None:
    command = Command(("bash", "--norc", "-i"), "/", sh("").env, tty=True)
    first = await table.exec(command, yield_ms=LONG)
    session = number(first)
    line = "sh -c 'echo as''leep; exec sleep 900'\n"
    busy = clock.once("asleep\r\n", 30)
    await table.write(session, line, yield_ms=LONG, on_delta=busy)
    after = await table.write(session, "\x03", yield_ms=LONG)
    assert after.waiting_for_input, "the shell has its terminal back"
    assert "hi\r\n" in (await table.write(session, "echo h''i\n", yield_ms=LONG)).text
    ended = await table.write(session, "exit 3\n", yield_ms=LONG)
    assert ended.exit_code == 3


async def test_a_long_line_of_input(table: Sessions, sh: Sh) -> None:
    command = sh("stty raw -echo; echo ready; head -c 500000 | md5sum", tty=True)
    first = await table.exec(command, yield_ms=LONG)
    assert first.text.startswith("ready")
    ended = await table.write(number(first), "x" * 500_000, yield_ms=LONG)
    digest = subprocess.run(
        ["md5sum"], input=b"x" * 500_000, capture_output=True, check=True
    ).stdout.decode()
    assert ended.text.strip() == digest.strip()


async def test_characters_across_calls(table: Sessions, sh: Sh, go: Path, clock: Clock) -> None:
    line = rf"printf 'a\xe2\x82'; {until_exists(go)}; printf '\xacb'"
    half = clock.once(b"a\xe2\x82", 30)
    first = await table.exec(sh(line), yield_ms=LONG, on_bytes=half)
    go.touch()
    second = await table.write(number(first), yield_ms=LONG)
    assert (first.text, second.text) == ("a", "€b")
    assert (first.original_bytes, second.original_bytes) == (1, 4)


async def test_half_a_character_at_the_end_is_not_lost(table: Sessions, sh: Sh) -> None:
    result = await table.exec(sh(r"printf 'a\xe2\x82'"))
    assert result.text == "a\ufffd"


async def test_more_than_the_buffer(table: Sessions, sh: Sh) -> None:
    result = await table.exec(sh("seq 1 400000"), yield_ms=30_000)
    total = sum(len(f"{n}\n") for n in range(1, 400_001))
    assert result.omitted == total - (1 << 20)
    assert result.original_bytes == total
    assert f"\n... {result.omitted} bytes omitted ...\n" in result.text
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("\n399999\n400000\n")


async def test_background_processes_do_not_hold_the_answer(
    table: Sessions, sh: Sh, mark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "STUCK", 900)
    result = await table.exec(sh(f"sleep {mark} & echo hi"))
    assert (result.state, result.text, result.exit_code) == ("exited", "hi\n", 0)
    assert list(result.background_pids) == mark.pids()


async def test_events_of_a_session(table: Sessions, sh: Sh, go: Path, clock: Clock) -> None:
    started: list[tuple[int, int]] = []
    deltas: list[str] = []
    raw: list[bytes] = []
    ends: list[SessionEnd] = []
    over = clock.once("a\n", 30)

    def hear(data: bytes) -> None:
        raw.append(data)
        over(data)

    first = await table.exec(
        sh(f"echo a; {until_exists(go)}; echo b; exit 3"),
        yield_ms=LONG,
        on_start=lambda session, pid: started.append((session, pid)),
        on_delta=deltas.append,
        on_bytes=hear,
        on_end=ends.append,
    )
    assert started == [(number(first), first.pid)]
    assert deltas == ["a\n"]
    assert ends == []
    go.touch()
    async with asyncio.timeout(60):
        while not ends:
            await asyncio.sleep(0.01)
    assert [(end.session_id, end.exit_code, end.transcript) for end in ends] == [
        (number(first), 3, "a\nb\n")
    ]
    later: list[str] = []
    await table.write(number(first), on_delta=later.append)
    assert b"".join(raw) == b"a\nb\n"
    assert (len(ends), later) == (1, [])


async def test_the_end_is_told_once_when_it_comes_at_once(
    table: Sessions, sh: Sh, clock: Clock
) -> None:
    ends: list[SessionEnd] = []
    await table.exec(sh("echo a"), on_end=ends.append)
    clock.skip(600)
    await asyncio.sleep(0.01)  # whatever was to happen later has happened
    assert [(end.exit_code, end.transcript) for end in ends] == [(0, "a\n")]


async def test_cancelling_a_start_kills_and_cancelling_a_poll_does_not(
    table: Sessions, sh: Sh, mark: Any
) -> None:
    task = asyncio.create_task(table.exec(sh(f"setsid sleep {mark} & sleep {mark}")))
    async with asyncio.timeout(60):
        while mark.count() < 2:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark.count() == 0
    assert table.list() == ()
    first = await table.exec(sh(f"sleep {mark}"), yield_ms=250)
    poll = asyncio.create_task(table.write(number(first)))
    await asyncio.sleep(0.1)
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    assert mark.count() == 1
    assert [row.session_id for row in table.list()] == [number(first)]


async def test_calls_on_one_session_queue(table: Sessions, sh: Sh) -> None:
    first = await table.exec(sh("read a; echo 1$a; read b; echo 2$b", tty=True), yield_ms=LONG)
    session = number(first)
    results = await asyncio.gather(
        table.write(session, "x\n", yield_ms=LONG), table.write(session, "y\n", yield_ms=LONG)
    )
    assert "1x\r\n" in results[0].text
    assert "2y\r\n" in results[1].text


async def test_two_tables_do_not_see_each_other(owner: Owner, table: Sessions, sh: Sh) -> None:
    other = Sessions(owner)
    first = await table.exec(sh("sleep 900"), yield_ms=250)
    with pytest.raises(UnknownSession):
        await other.write(number(first))
    await other.aclose()
    assert os.path.exists(f"/proc/{first.pid}")


async def test_numbers(owner: Owner, sh: Sh) -> None:
    ordered = Sessions(owner, ordered=True)
    assert [ordered.reserve() for _ in range(3)] == [1000, 1001, 1002]
    ordered.release(1002)
    result = await ordered.exec(sh("sleep 900"), yield_ms=250, session_id=1001)
    assert result.session_id == 1001
    assert ordered.reserve() == 1002
    await ordered.aclose()
    free = Sessions(owner)
    numbers = {free.reserve() for _ in range(5000)}
    assert len(numbers) == 5000
    assert min(numbers) >= 1000
    assert max(numbers) <= 99_999


@pytest.mark.slow
async def test_a_full_table(
    owner: Owner, sh: Sh, mark: Any, go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "YIELD_LEAST", 30)
    table = Sessions(owner, ordered=True)
    results = []
    for index in range(64):
        line = until_exists(go) if index == 20 else f"sleep {mark}"
        results.append(await table.exec(sh(line), yield_ms=30))
    assert [bool(result.warning) for result in results] == [False] * 59 + [True] * 5
    assert results[63].warning is not None
    assert "64" in results[63].warning
    assert len(table.list()) == 64
    go.touch()
    await until_ended(table, 1020)
    # One that has exited goes before older ones that still run.
    assert (await table.exec(sh(f"sleep {mark}"), yield_ms=30)).evicted == 1020
    # Then the least recently used; a session with a call under way is not touched.
    poll = asyncio.create_task(table.write(1000, yield_ms=LONG))
    await asyncio.sleep(0)
    assert (await table.exec(sh(f"sleep {mark}"), yield_ms=30)).evicted == 1001
    assert len(table.list()) == 64
    with pytest.raises(UnknownSession):
        await table.write(1001)
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)
    await table.aclose()
    assert mark.count() == 0


@pytest.mark.needs("namespaces")
async def test_a_launcher_with_its_own_pids(
    table: Sessions, sh: Sh, mark: Any, clock: Clock
) -> None:
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    argv = ("unshare", *user, "--pid", "--fork", "--kill-child", "bash", "-c")
    line = (
        f'trap "echo caught" INT; (setsid sleep {mark} &); echo ready; while :; do sleep 0.05; done'
    )
    inner = Command((*argv, f"bash -c '{line}'; echo over"), "/", sh("").env)
    confined = replace(inner, own_pid_namespace=True)
    first = await table.exec(confined, yield_ms=LONG, on_bytes=clock.once("ready\n", 30))
    assert first.text == "ready\n"
    caught = clock.once("caught\n", 30)
    again = await table.write(number(first), "\x03", yield_ms=LONG, on_delta=caught)
    assert (again.state, again.text) == ("still_running", "caught\n"), "the launcher was spared"
    assert mark.count() >= 1
    await table.stop(number(first))
    assert mark.count() == 0


async def test_no_signal_reaches_a_launcher(table: Sessions, sh: Sh, clock: Clock) -> None:
    """One that a launcher does not ignore by itself, as unshare does SIGINT, would end the tree."""
    inner = 'trap "echo caught; exit" USR1; echo ready; while :; do sleep 0.05; done'
    line = (
        f"trap 'echo hit' USR1; bash -c '{inner}' & while kill -0 $!; do wait $!; done; echo over"
    )
    command = Command(("bash", "-c", line), "/", sh("").env, own_pid_namespace=True)
    first = await table.exec(command, yield_ms=LONG, on_bytes=clock.once("ready\n", 30))
    table.signal(number(first), signal.SIGUSR1)
    ended = await table.write(number(first), yield_ms=LONG)
    assert ended.state == "exited"
    assert "caught\n" in ended.text
    assert "hit" not in ended.text
    assert "over" in ended.text


async def test_signals_by_number(table: Sessions, sh: Sh) -> None:
    first = await table.exec(sh("sleep 900"), yield_ms=250)
    table.signal(number(first), signal.SIGUSR1)
    ended = await table.write(number(first))
    assert (ended.state, ended.signal) == ("signaled", signal.SIGUSR1)


async def test_the_list(table: Sessions, sh: Sh) -> None:
    first = await table.exec(sh("sleep 900", tty=True), yield_ms=250, call_id="call-1")
    (row,) = table.list()
    assert (row.session_id, row.call_id, row.tty) == (number(first), "call-1", True)
    assert (row.pid, row.exit_code, row.argv[-1]) == (first.pid, None, "sleep 900")
    assert row.age >= row.idle >= 0
