"""One command to its end: every state, its output, its background, its memory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.clock import Clock

from toolrest.process import output_reader as running
from toolrest.process.command import Command
from toolrest.process.output.head_tail import LIMIT
from toolrest.process.owner import Owner
from toolrest.process.run import Stream, run

Sh = Callable[..., Command]


async def test_exited(owner: Owner, sh: Sh) -> None:
    began = time.monotonic()
    result = await run(owner, sh("echo out; echo err >&2; exit 3"))
    assert (result.state, result.exit_code, result.signal) == ("exited", 3, None)
    assert (result.stdout, result.stderr, result.aggregated) == ("out\n", "err\n", "out\nerr\n")
    assert (result.background_pids, result.survivors, result.error) == ((), (), None)
    assert 0 < result.duration <= time.monotonic() - began
    assert not os.path.exists(f"/proc/{result.pid}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_signaled(owner: Owner, sh: Sh, number: int) -> None:
    result = await run(owner, sh(f"ulimit -c 0; echo before; kill -{number} $$"))
    assert (result.state, result.exit_code, result.signal) == ("signaled", 128 + number, number)
    assert result.stdout == "before\n"


async def test_exit_codes_above_128_are_not_signals(owner: Owner, sh: Sh) -> None:
    result = await run(owner, sh("exit 137"))
    assert (result.state, result.exit_code, result.signal) == ("exited", 137, None)


async def test_timed_out(owner: Owner, sh: Sh, clock: Clock) -> None:
    line, over = "echo so far; sleep 900", clock.once("so far\n", 600)
    result = await run(owner, sh(line), time_limit=600, on_bytes=over)
    assert (result.state, result.exit_code, result.timed_out) == ("timed_out", 124, True)
    assert result.stdout == "so far\n"
    assert 600 <= result.duration < 900
    assert not os.path.exists(f"/proc/{result.pid}")


async def test_no_time_at_all(owner: Owner, sh: Sh) -> None:
    result = await run(owner, sh("sleep 900"), time_limit=0)
    assert result.state == "timed_out"


async def test_still_running_when_the_caller_wants_that(sh: Sh, mark: Any, clock: Clock) -> None:
    owner = Owner()
    line, over = f"echo a; sleep {mark}; :", clock.once("a\n", 600)
    result = await run(owner, sh(line), time_limit=600, on_timeout="background", on_bytes=over)
    assert (result.state, result.exit_code, result.stdout) == ("still_running", None, "a\n")
    assert result.pid in result.background_pids
    assert mark.count() >= 1
    assert os.path.exists(f"/proc/{result.pid}")
    await owner.aclose()
    assert mark.count() == 0


async def test_failed_to_start(owner: Owner) -> None:
    result = await run(owner, Command(("nope",), "/", {"PATH": "/bin"}))
    assert (result.state, result.exit_code, result.stdout) == ("failed_to_start", None, "")
    assert result.error == "cannot run `nope`: No such file or directory (os error 2)"


async def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_answer(
    sh: Sh, mark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "STUCK", 900)
    owner = Owner()
    result = await run(owner, sh(f"sleep {mark} & echo hi"))
    assert (result.state, result.stdout) == ("exited", "hi\n")
    assert list(result.background_pids) == mark.pids()
    await owner.aclose()


async def test_what_a_grandchild_says_in_time_is_kept(
    owner: Owner, sh: Sh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "QUIET", 600)
    monkeypatch.setattr(running, "CHATTER", 600)
    result = await run(owner, sh("(sleep 0.01; echo late; echo later >&2) & echo hi"))
    assert result.stdout == "hi\nlate\n"
    assert result.stderr == "later\n"


async def test_a_talkative_grandchild_does_not_hold_the_answer(
    sh: Sh, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "QUIET", 600)  # it never is, on a machine of any speed
    monkeypatch.setattr(running, "STUCK", 900)
    owner = Owner()
    said = tmp_path / "said"
    line = f"(while :; do echo more; touch {said}; sleep 0.01; done) & "
    result = await run(owner, sh(f"{line} until [ -e {said} ]; do sleep 0.01; done; echo hi"))
    assert result.state == "exited"
    assert "more\n" in result.stdout
    await owner.aclose()


async def test_background_processes_are_not_killed_by_a_broken_pipe(sh: Sh, tmp_path: Any) -> None:
    owner = Owner()
    go, done = tmp_path / "go", tmp_path / "done"
    later = f"until [ -e {go} ]; do sleep 0.01; done; for i in $(seq 20000); do echo line $i; done"
    result = await run(owner, sh(f"({later}; touch {done}) & echo hi"))
    assert result.stdout == "hi\n"
    go.touch()
    async with asyncio.timeout(60):
        while not done.exists():
            await asyncio.sleep(0.01)
    await owner.aclose()


async def test_no_input_and_no_terminal(owner: Owner, sh: Sh) -> None:
    result = await run(owner, sh("read x; echo $?; (echo hello >/dev/tty) 2>&1; tty"))
    assert result.stdout.startswith("1\n")
    assert "No such device or address" in result.stdout
    assert result.stdout.endswith("not a tty\n")


@pytest.mark.parametrize(
    "line",
    ["python3", "less /etc/passwd", "read x", "cat", "git clone -q https://[::1]:1/x x"],
)
async def test_what_would_ask_ends_by_itself(owner: Owner, sh: Sh, line: str) -> None:
    result = await run(owner, sh(line), time_limit=60)
    assert result.state == "exited"


async def test_characters_across_chunks(owner: Owner, sh: Sh) -> None:
    deltas: list[tuple[Stream, str]] = []
    line = r"printf '\xe2'; sleep 0.05; printf '\x82'; sleep 0.05; printf '\xac\xf0\x9f'; "
    line += r"sleep 0.05; printf '\x98\x80' ; printf 'e' >&2"
    result = await run(owner, sh(line), on_delta=lambda stream, text: deltas.append((stream, text)))
    assert result.stdout == "€😀"
    assert "".join(text for stream, text in deltas if stream == "stdout") == "€😀"
    assert "".join(text for stream, text in deltas if stream == "stderr") == "e"


async def test_deltas_are_bounded_and_bytes_are_not(owner: Owner, sh: Sh) -> None:
    sizes: list[int] = []
    received = 0

    def count(_stream: Stream, data: bytes) -> None:
        nonlocal received
        received += len(data)

    result = await run(
        owner,
        sh("head -c 100000000 /dev/zero"),
        time_limit=None,
        on_delta=lambda _, text: sizes.append(len(text)),
        on_bytes=count,
    )
    assert result.state == "exited"
    assert received == 100_000_000 == result.stdout_piece.total
    assert len(sizes) == 10_000
    assert max(sizes) <= 8192


async def test_more_than_the_limit(owner: Owner, sh: Sh) -> None:
    line = "seq 1 400000; seq 1 400000 >&2"
    result = await run(owner, sh(line), time_limit=None)
    whole = "".join(f"{number}\n" for number in range(1, 400_001))
    piece = result.stdout_piece
    assert piece.total == len(whole)
    assert piece.omitted == len(whole) - LIMIT
    assert whole.startswith(piece.head.decode())
    assert whole.endswith(piece.tail.decode())
    assert f"\n... {piece.omitted} bytes omitted ...\n" in result.stdout
    assert result.aggregated.endswith("\n400000\n")
    assert len(result.aggregated) < LIMIT + 200


async def test_cancelling_while_starting(owner: Owner, sh: Sh, mark: Any) -> None:
    for delay in (0.0, 0.0005, 0.001, 0.002, 0.005):
        task = asyncio.create_task(run(owner, sh(f"sleep {mark}")))
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert mark.count() == 0


async def test_a_timeout_around_the_call(owner: Owner, sh: Sh, mark: Any, clock: Clock) -> None:
    line, over = f"setsid sleep {mark} & echo both; sleep {mark}", clock.once("both\n", 600)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await run(owner, sh(line), time_limit=None, on_bytes=over)
    assert mark.count() == 0


PRODUCER = """
import asyncio, resource, sys
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.sessions.table import Sessions

async def main(size):
    owner, env = Owner(), {"PATH": "/usr/bin:/bin"}
    await run(owner, Command(("true",), "/", env))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = f"head -c {size} /dev/zero | tr '\\\\0' x; echo; echo the end"
    command = Command(("bash", "-c", line), "/", env)
    result = await run(owner, command, time_limit=None)
    assert result.stdout_piece.total == size + 9, result
    assert result.stdout.endswith("x\\nthe end\\n")
    sessions = Sessions(owner)
    last = await sessions.exec(command, yield_ms=250)
    total, shown = last.original_bytes, last.text[-20:]
    while last.session_id:
        last = await sessions.write(last.session_id)
        total, shown = total + last.original_bytes, (shown + last.text)[-20:]
    assert total == size + 9, total
    assert shown.endswith("x\\nthe end\\n"), shown
    await owner.aclose()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main(int(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_huge_producer_costs_little_memory(
    script: Callable[..., subprocess.Popen[str]], full: bool
) -> None:
    size = 1_000_000_000 if full else 100_000_000
    out, err = script(PRODUCER, str(size)).communicate(timeout=500)
    assert err == ""
    assert int(out) < 32 * 1024
