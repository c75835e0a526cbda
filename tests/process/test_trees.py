"""Nothing that a command started outlives it: timeout, cancel, close, and death of the host."""

from __future__ import annotations

import asyncio
import contextlib
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
from toolrest.process.helper import tree
from toolrest.process.owner import Owner
from toolrest.process.run import GRACE, RunResult, run
from toolrest.process.sessions.table import Sessions

Sh = Callable[..., Command]

DAEMON = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.chdir('/')\n"
    "os.closerange(0, 256)\n"
    "os.execve('/bin/sleep', ['sleep', sys.argv[1]], {})\n"
)
SHAPES = {
    "plain": ("sleep {0}", 1),
    "background": ("sleep {0} & sleep {0} & wait", 2),
    "setsid": ("setsid sleep {0} & wait; sleep {0}", 2),
    "nohup": ("nohup sleep {0} >/dev/null 2>&1 & sleep {0}", 2),
    "double_fork": ("(setsid sh -c 'sleep {0} & exec sleep {0}' &) ; sleep {0}", 3),
    "daemon": ('python3 -c "$DAEMON" {0}; sleep {0}', 2),
    "clean_environment": ("env -i setsid /bin/sleep {0} & sleep {0}", 2),
    "deaf": ("trap '' TERM INT HUP; sleep {0} & sleep {0}", 2),
    "stopped": ("sleep {0} & kill -STOP $!; sleep {0}", 2),
    "respawning": ("(while :; do sleep {0}; done) & sleep {0}", 2),
}


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, sh: Sh, mark: Any) -> tuple[Command, int]:
    line, count = SHAPES[request.param]
    # A deaf or looping bash has no mark itself; the mark counts the sleepers only.
    return sh(line.format(mark), env={"DAEMON": DAEMON}), count


async def until_running(mark: Any, count: int) -> None:
    async with asyncio.timeout(60):
        while mark.count() < count:
            await asyncio.sleep(0.01)


async def timed_out(
    owner: Owner, command: Command, mark: Any, count: int, clock: Clock
) -> RunResult:
    """How a command went whose time was over when this many bore the mark."""
    task = asyncio.create_task(run(owner, command, time_limit=600))
    await until_running(mark, count)
    clock.skip(600)
    return await task


async def test_timeout(owner: Owner, shape: tuple[Command, int], mark: Any, clock: Clock) -> None:
    result = await timed_out(owner, shape[0], mark, shape[1], clock)
    assert (result.state, result.exit_code, result.survivors) == ("timed_out", 124, ())
    assert mark.count() == 0


async def test_cancel_raises_only_after_the_tree_is_dead(
    owner: Owner, shape: tuple[Command, int], mark: Any
) -> None:
    task = asyncio.create_task(run(owner, shape[0], time_limit=None))
    await until_running(mark, shape[1])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark.count() == 0


async def test_cancelled_twice_is_still_dead_first(owner: Owner, sh: Sh, mark: Any) -> None:
    line = f"trap '' TERM; sleep {mark} & sleep {mark}"
    task = asyncio.create_task(run(owner, sh(line), time_limit=None, grace=0.3))
    await until_running(mark, 2)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)  # it has heard of that, and the kill is under way
    with pytest.raises(asyncio.CancelledError):
        await task
    assert mark.count() == 0


async def test_close(sh: Sh, shape: tuple[Command, int], mark: Any) -> None:
    owner = Owner()
    sessions = Sessions(owner)
    result = await sessions.exec(shape[0], yield_ms=250)
    assert result.state == "still_running"
    await until_running(mark, shape[1])
    await sessions.aclose()
    assert mark.count() == 0
    assert await owner.aclose() == ()
    assert owner.pid
    assert not os.path.exists(f"/proc/{owner.pid}")


async def test_background_lives_until_the_session_ends(
    sh: Sh, mark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "STUCK", 900)  # it is not a pipe's end that is waited for
    owner = Owner()
    result = await run(owner, sh(f"setsid sleep {mark} & echo hi"))
    assert (result.state, result.exit_code, result.stdout) == ("exited", 0, "hi\n")
    assert len(result.background_pids) == 1
    assert mark.count() == 1
    await owner.aclose()
    assert mark.count() == 0


@pytest.mark.slow
async def test_trees_are_ended_one_by_one(owner: Owner, sh: Sh, mark: Any) -> None:
    sessions = Sessions(owner)
    line = f"(setsid sh -c 'sleep {mark} & exec sleep {mark}' &); sleep {mark}"
    first = await sessions.exec(sh(line), yield_ms=250)
    second = await sessions.exec(sh(line), yield_ms=250)
    await until_running(mark, 6)
    assert first.session_id is not None
    assert second.session_id is not None
    await sessions.stop(first.session_id)
    assert mark.count() == 3
    await sessions.stop(second.session_id)
    assert mark.count() == 0


async def test_two_owners_do_not_touch_each_other(owner: Owner, sh: Sh, mark: Any) -> None:
    other = Owner()
    task = asyncio.create_task(run(owner, sh(f"sleep {mark}"), time_limit=None))
    away = asyncio.create_task(run(other, sh(f"sleep {mark}"), time_limit=None))
    await until_running(mark, 2)
    await other.aclose()
    assert mark.count() == 1
    assert (await away).state == "signaled"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


FORKS = """
import os, sys, time
end = time.monotonic() + 120
os.write(1, b"up\\n")
while time.monotonic() < end:
    # Every process starts another and ends: none is there long, one always is.
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.0005)
"""


async def test_processes_that_run_away_by_forking(
    owner: Owner, sh: Sh, mark: Any, clock: Clock
) -> None:
    runners = " ".join(f'python3 -S -c "$FORKS" {mark} &' for _ in range(8))
    command = sh(f"{runners} wait; sleep 900", env={"FORKS": FORKS})
    up = clock.once("up\n" * 8, 600)  # none is there long enough to be counted
    result = await run(owner, command, time_limit=600, on_bytes=up)
    assert (result.state, result.survivors) == ("timed_out", ())
    assert mark.count() == 0


async def test_many_at_once(owner: Owner, sh: Sh, mark: Any, clock: Clock) -> None:
    line = f"for i in $(seq 200); do sleep {mark} & done; wait"
    result = await timed_out(owner, sh(line), mark, 201, clock)
    assert (result.state, result.survivors) == ("timed_out", ())
    assert mark.count() == 0


async def test_git_style_cleanup_has_time(
    owner: Owner, sh: Sh, tmp_path: Any, clock: Clock
) -> None:
    lock = tmp_path / "index.lock"
    line = f"trap 'rm {lock}; exit 1' TERM; touch {lock}; echo locked; sleep 900 & wait"
    assert GRACE >= 0.1, "what git needs; how long `rm` takes here is the machine's affair"
    result = await run(
        owner, sh(line), time_limit=600, grace=60, on_bytes=clock.once("locked\n", 600)
    )
    assert result.state == "timed_out"
    assert not lock.exists()


async def test_a_killed_keeper_takes_its_tree_along(owner: Owner, sh: Sh, mark: Any) -> None:
    line = f"(setsid sleep {mark} &) ; sleep 0.3; kill -9 $PPID; sleep {mark}"
    result = await run(owner, sh(line), time_limit=60)
    assert (result.state, result.signal) == ("signaled", 9)
    assert result.error
    mark.expect(0)
    assert (await run(owner, sh("echo next"))).stdout == "next\n"


async def test_a_killed_helper_takes_all_along_and_is_replaced(
    owner: Owner, sh: Sh, mark: Any
) -> None:
    command = sh(f"setsid sleep {mark} & sleep {mark}")
    task = asyncio.create_task(run(owner, command, time_limit=None))
    await until_running(mark, 2)
    os.kill(owner.pid, signal.SIGKILL)
    assert (await task).state == "signaled"
    mark.expect(0)
    assert (await run(owner, sh("echo next"))).stdout == "next\n"


async def test_a_dead_helper_gets_no_request_though_its_keeper_would_hear_it(
    owner: Owner, sh: Sh
) -> None:
    assert (await run(owner, sh("echo first"))).stdout == "first\n"
    keepers = tree.children(owner.pid)
    for pid in keepers:
        os.kill(pid, signal.SIGSTOP)
    try:
        os.kill(owner.pid, signal.SIGKILL)
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        done = await run(owner, sh("echo next"), time_limit=60)
        assert (done.state, done.stdout) == ("exited", "next\n")
    finally:
        for pid in keepers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
async def test_a_command_that_stops_its_keeper(
    owner: Owner, sh: Sh, mark: Any, clock: Clock
) -> None:
    line = f"kill -STOP $PPID; setsid sleep {mark} & sleep {mark}"
    result = await timed_out(owner, sh(line), mark, 3, clock)
    assert (result.state, result.survivors) == ("timed_out", ())
    assert mark.count() == 0


async def test_a_command_that_kills_helper_and_keeper(owner: Owner, sh: Sh, mark: Any) -> None:
    started = await run(owner, sh("echo"))
    if owner.cgroup is None:
        pytest.skip("no control group can be made here")
    assert started.state == "exited"
    line = f"(setsid sh -c 'sleep 0.3; kill -9 $0 {owner.pid}; exec sleep {mark}' $PPID &)"
    assert (await run(owner, sh(f"{line}; sleep {mark}"), time_limit=60)).state == "signaled"
    mark.expect(0)
    assert (await run(owner, sh("echo next"))).stdout == "next\n"


async def test_helper_and_keeper_killed_at_once(sh: Sh, mark: Any) -> None:
    owner = Owner(cgroup=False)
    child = await owner.start(sh(f"exec sleep {mark}"))
    for number in (signal.SIGSTOP, signal.SIGKILL):  # neither has time to end the other's tree
        for pid in (owner.pid, child.keeper):
            os.kill(pid, number)
    assert (await child.wait(60)) is not None
    mark.expect(0)
    for fd in child.outputs:
        os.close(fd)
    await owner.aclose()


HOST = """
import asyncio, sys
from toolrest.process.command import Command
from toolrest.process.helper import tree
from toolrest.process.owner import Owner
from toolrest.process.sessions.table import Sessions

async def main(lines):
    owner = Owner()
    sessions = Sessions(owner)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "DAEMON": sys.argv[1]}
    commands = [
        Command(("bash", "-c", line), "/", env, tty=tty) for tty in (False, True) for line in lines
    ]
    results = await asyncio.gather(*(sessions.exec(c, yield_ms=1000) for c in commands))
    assert all(result.state == "still_running" for result in results), results
    print("ready", owner.pid, flush=True)
    await asyncio.sleep(900)

asyncio.run(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_death_of_the_host(
    script: Callable[..., subprocess.Popen[str]], mark: Any, number: int
) -> None:
    lines = [line.format(mark) for line, _ in SHAPES.values()]
    host = script(HOST, DAEMON, *lines)
    assert host.stdout is not None
    ready = host.stdout.readline().split()
    assert ready[:1] == ["ready"], host.communicate()[1]
    asyncio.run(until_running(mark, 2 * sum(count for _, count in SHAPES.values())))
    host.send_signal(number)
    host.communicate()
    mark.expect(0)
    helper_gone(int(ready[1]))


def helper_gone(pid: int) -> None:
    until = time.monotonic() + 60
    while tree.alive(pid):  # a dead one may stay until the process that adopted it looks
        assert time.monotonic() < until, "the helper outlived its host"
        time.sleep(0.01)


FORKED = """
import asyncio, os, sys, time
from toolrest.process.command import Command
from toolrest.process.helper import tree
from toolrest.process.owner import Owner

async def main():
    owner = Owner()
    await owner.start(Command(("sleep", sys.argv[1]), "/", {"PATH": "/usr/bin:/bin"}))
    copy = os.fork()
    if copy == 0:
        time.sleep(900)
        os._exit(0)
    print(copy, flush=True)
    await asyncio.sleep(900)

asyncio.run(main())
"""


def test_a_forked_copy_of_the_host_keeps_nothing_alive(
    script: Callable[..., subprocess.Popen[str]], mark: Any
) -> None:
    host = script(FORKED, str(mark))
    assert host.stdout is not None
    copy = int(host.stdout.readline())
    host.kill()
    host.wait()
    sleepers = [pid for pid in mark.pids() if pid != copy]
    mark.expect(1)  # the copy itself, which has the mark among its arguments
    assert mark.pids() == [copy], sleepers
    os.kill(copy, signal.SIGKILL)
    host.communicate()


@pytest.mark.slow
async def test_whoever_ends_while_others_are_collected_is_not_forgotten(
    owner: Owner, sh: Sh, full: bool
) -> None:
    """Children that end all at once: news of one must not be lost while another is looked at."""

    async def worker() -> list[str]:
        line = "(true & true & true &) ; (true & true &) ; true"
        return [(await run(owner, sh(line), time_limit=60)).state for _ in range(count)]

    count = 400 if full else 60
    states = await asyncio.gather(*(worker() for _ in range(3)))
    assert {state for some in states for state in some} == {"exited"}
    async with asyncio.timeout(60):
        while owner.children:
            await asyncio.sleep(0.01)
