"""What a child finds when it starts, and what is said when it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolrest.errors import ToolrestError
from toolrest.process.child import StartFailed
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import RunResult, run

Sh = Callable[..., Command]

LOOK = """
import json, os, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    tty = True
except OSError as error:
    tty = error.errno
print(json.dumps({
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd")),
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "sid": os.getsid(0) == os.getpid(),
    "stdin": os.readlink("/proc/self/fd/0"),
    "ignored": int(status["SigIgn"], 16),
    "blocked": int(status["SigBlk"], 16),
    "tty": tty,
    "new_privs": status["NoNewPrivs"].strip(),
    "dumpable": os.stat("/proc/self/environ").st_uid,
}))
"""


async def look(owner: Owner, **changes: object) -> dict[str, Any]:
    command = Command((_python(), "-I", "-S", "-c", LOOK), "/tmp", {"LC_ALL": "C.UTF-8"})
    result = await run(owner, replace(command, **changes))
    assert result.state == "exited", (result, result.stderr)
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def _python() -> str:
    return os.path.realpath(sys.executable)


async def test_a_child_gets_what_the_command_says_and_nothing_else(owner: Owner) -> None:
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        found = await look(owner)
    finally:
        os.close(leaked)
    assert found["fds"] == [0, 1, 2, 3]  # 3 is the folder it is listing
    assert found["env"] == {"LC_ALL": "C.UTF-8"}
    assert found["cwd"] == "/tmp"
    assert found["sid"] is True
    assert found["stdin"] == "/dev/null"
    assert found["tty"] == 6  # ENXIO at once: there is no terminal to ask at
    assert found["new_privs"] == "0"
    assert found["dumpable"] == os.geteuid()
    # Python itself ignores SIGPIPE and SIGXFSZ; nothing else may be inherited as ignored.
    assert found["ignored"] & 0x7FFFFFFF == 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert found["blocked"] == 0


async def test_signals_are_as_in_a_fresh_login(owner: Owner, sh: Sh) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        result = await run(owner, sh("grep -E 'SigIgn|SigBlk' /proc/self/status"))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        signal.signal(signal.SIGHUP, previous)
    masks = {line.split()[0]: int(line.split()[1], 16) for line in result.stdout.splitlines()}
    internal = 1 << 31 | 1 << 32  # glibc's own two, which no program can use
    assert masks["SigBlk:"] == 0
    assert masks["SigIgn:"] & ~internal == 0


async def test_a_broken_pipe_kills_as_usual(owner: Owner, sh: Sh) -> None:
    result = await run(owner, sh("yes | head -n1; echo ${PIPESTATUS[0]}"))
    assert result.stdout == "y\n141\n"


async def test_memory_files_and_descriptors(owner: Owner, tmp_path: Path) -> None:
    path = tmp_path / "handed"
    path.write_text("from a file")
    fd = os.open(path, os.O_RDONLY)
    script = (
        "cat <&9; echo; cat <&3; echo; cat <&12; echo;"
        "sh -c 'echo x >&9' 2>/dev/null || echo sealed; ls /proc/self/fd | wc -l"
    )
    command = Command(
        ("bash", "-c", script),
        "/",
        {"PATH": "/usr/bin:/bin"},
        files=((9, b"nine"), (3, b"\0three")),
        fds=((12, fd),),
    )
    try:
        result = await run(owner, command)
    finally:
        os.close(fd)
    assert result.stdout.split("\n")[:4] == ["nine", "\0three", "from a file", "sealed"]


async def test_descriptors_may_change_places(owner: Owner, tmp_path: Path) -> None:
    fds = []
    for name in "ab":
        (tmp_path / name).write_text(name)
        fds.append(os.open(tmp_path / name, os.O_RDONLY))
    low, high = sorted(fds)
    command = Command(
        ("sh", "-c", f"cat <&{low}; cat <&{high}"),
        "/",
        {"PATH": "/usr/bin:/bin"},
        fds=((high, low), (low, high)),
    )
    if max(fds) > 9:
        command = replace(command, argv=("bash", *command.argv[1:]))
    try:
        result = await run(owner, command)
    finally:
        for fd in fds:
            os.close(fd)
    assert result.stdout == "ba"


async def test_limits_never_above_our_own(owner: Owner, sh: Sh) -> None:
    _, ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 4096, 8192),
        (resource.RLIMIT_NOFILE, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    )
    command = replace(sh("ulimit -c; ulimit -f; ulimit -Hf; ulimit -Hn"), limits=limits)
    result = await run(owner, command)
    assert result.state == "exited", result
    core, soft, hard, files = result.stdout.split()
    assert (core, soft, hard) == ("0", "4", "8")
    assert files == "unlimited" or ceiling == resource.RLIM_INFINITY or int(files) <= ceiling


@pytest.mark.needs("landlock")
async def test_landlock(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    (tmp_path / "no").mkdir()
    everything, reading = (1 << 16) - 1, 1 << 0 | 1 << 2 | 1 << 3
    command = Command(
        ("bash", "-c", "echo a > yes/f; cat yes/f; echo b > no/f; echo c > /dev/null; echo done"),
        str(tmp_path),
        {"PATH": "/usr/bin:/bin"},
        landlock=(
            ("/", reading),
            ("/dev/null", everything),
            (str(tmp_path / "yes"), everything),
            (str(tmp_path / "missing"), everything),
        ),
        landlock_net=True,
        landlock_scoped=3,
    )
    result = await run(owner, command)
    assert result.stdout == "a\ndone\n"
    assert "no/f: Permission denied" in result.stderr
    assert not (tmp_path / "no" / "f").exists()


@pytest.mark.needs("landlock")
async def test_landlock_sets_no_new_privileges(owner: Owner) -> None:
    found = await look(owner, landlock=(("/", (1 << 16) - 1),))
    assert found["new_privs"] == "1"


def seccomp(number: int, error: int) -> bytes:
    """Deny one system call of this machine."""

    def instruction(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    return b"".join(
        (
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, number),
            instruction(0x06, 0, 0, 0x00050000 | error),
            instruction(0x06, 0, 0, 0x7FFF0000),
        )
    )


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86-64")
async def test_seccomp(owner: Owner, tmp_path: Path) -> None:
    mkdir = 83
    command = Command(
        ("mkdir", "new"), str(tmp_path), {"PATH": "/usr/bin:/bin"}, seccomp=seccomp(mkdir, 38)
    )
    result = await run(owner, command)
    assert result.exit_code == 1
    assert "Function not implemented" in result.stderr


async def test_a_step_that_fails_means_that_nothing_ran(owner: Owner, tmp_path: Path) -> None:
    command = Command(("touch", "ran"), str(tmp_path), {"PATH": "/usr/bin:/bin"})
    result = await run(owner, replace(command, seccomp=b"\xff" * 8))
    assert result.state == "failed_to_start"
    assert result.error == "cannot confine with seccomp `touch`: Invalid argument (os error 22)"
    assert not (tmp_path / "ran").exists()


MISSING = "No such file or directory (os error 2)"
UNSTARTABLE: list[tuple[dict[str, object], str]] = [
    ({"argv": ("no-such-program",)}, f"cannot run `no-such-program`: {MISSING}"),
    ({"argv": ("/etc/passwd",)}, "cannot run `/etc/passwd`: Permission denied (os error 13)"),
    ({"argv": ("/",)}, "cannot run `/`: Permission denied (os error 13)"),
    ({"env": {"PATH": "relative:"}}, f"cannot run `true`: {MISSING}"),
    ({"cwd": "/no/such"}, f"cannot enter the working directory `/no/such`: {MISSING}"),
    (
        {"cwd": "/etc/passwd"},
        "cannot enter the working directory `/etc/passwd`: Not a directory (os error 20)",
    ),
    (
        {"argv": ("true", "x" * 3_000_000)},
        "cannot run `true`: Argument list too long (os error 7)",
    ),
    ({"argv": ()}, "the command is empty: give the program as the first element"),
    ({"argv": ("true", "a\0b")}, "argument 1 of the command contains a NUL character"),
    ({"cwd": "/\0"}, "the working directory contains a NUL character"),
    ({"env": {"A=B": "c"}}, "the environment variable 'A=B' cannot be passed to a program"),
    ({"env": {"A": "\0"}}, "the environment variable 'A' cannot be passed to a program"),
    (
        {"limits": ((9999, 1, 1),)},
        "cannot set the resource limits of `true`: Invalid argument (os error 22)",
    ),
]


@pytest.mark.parametrize(("changes", "message"), UNSTARTABLE)
async def test_words_for_what_cannot_start(
    owner: Owner, changes: dict[str, object], message: str
) -> None:
    command = Command(("true",), "/", {"PATH": "/usr/bin:/bin"})
    command = replace(command, **changes)
    for tty in (False, True):
        with pytest.raises(StartFailed) as caught:
            await owner.start(replace(command, tty=tty))
        assert str(caught.value) == message
    assert (await run(owner, command)).error == message


async def test_a_very_long_command_line(owner: Owner) -> None:
    words = ("x" * 100_000,) * 12
    result = await run(
        owner, Command(("bash", "-c", 'echo "${#*}" $#', *words), "/", {"PATH": "/bin"})
    )
    assert result.stdout == "1100010 11\n" or result.stdout.endswith("11\n")


async def test_names_that_are_not_utf8(owner: Owner, tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff\xfe")
    result = await run(owner, Command(("printf", "%s", odd), "/", {"PATH": "/usr/bin"}))
    assert result.stdout_piece.head == b"\xff\xfe"


async def test_many_at_the_same_time(owner: Owner, sh: Sh) -> None:
    lines = [f"echo {number}; exit {number % 7}" for number in range(60)]
    results = await asyncio.gather(*(run(owner, sh(line)) for line in lines))
    assert [(r.stdout, r.exit_code) for r in results] == [
        (f"{number}\n", number % 7) for number in range(60)
    ]


@pytest.mark.slow
async def test_bursts_of_commands_that_stay(owner: Owner, sh: Sh, full: bool) -> None:
    async def one() -> None:
        result = await run(owner, sh("echo here; exec sleep 60"), time_limit=None)
        raise AssertionError(result)

    for _ in range(60 if full else 12):
        tasks = [asyncio.create_task(one()) for _ in range(25)]
        starts = [asyncio.create_task(owner.start(sh("exec sleep 60"))) for _ in range(5)]
        async with asyncio.timeout(30):
            children = await asyncio.gather(*starts)
        for child in children:
            await child.kill()
            for fd in child.outputs:
                os.close(fd)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_calls_share_no_state(owner: Owner, sh: Sh) -> None:
    spoil = (
        "export PAGER=evil LD_PRELOAD=/evil.so; cd /tmp; umask 077; ulimit -S -n 50; trap '' INT"
    )
    look_ = "echo $PAGER $LD_PRELOAD $PWD $(umask) $(ulimit -S -n); grep SigIgn /proc/self/status"
    before = await run(owner, sh(look_))
    for _ in range(4):
        await run(owner, sh(spoil))
        assert (await run(owner, sh(look_))).stdout == before.stdout


async def test_a_closed_owner_starts_nothing(sh: Sh) -> None:
    owner = Owner()
    assert await owner.aclose() == ()
    with pytest.raises(ToolrestError, match="closed"):
        await owner.start(sh("true"))


async def test_commands_running_at_close_end_with_a_state(sh: Sh) -> None:
    owner = Owner()
    task = asyncio.create_task(run(owner, sh("sleep 60"), time_limit=None))
    while not owner.children:
        await asyncio.sleep(0.01)
    await owner.aclose()
    assert (await task).state == "signaled"


async def test_secrets_of_the_host_are_not_in_the_helper(
    owner: Owner, sh: Sh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-value")
    line = (
        "p=$$; for i in 1 2 3; do p=$(cut -d' ' -f4 /proc/$p/stat); [ $p -gt 1 ] || break;"
        " [ $i -lt 3 ] && tr '\\0' ' ' </proc/$p/environ; done; true"
    )
    result = await run(owner, sh(line))
    assert "canary" not in result.stdout


def test_a_second_event_loop_gets_a_new_helper(sh: Sh) -> None:
    owner = Owner()

    async def once() -> tuple[RunResult, int]:
        return await run(owner, sh("echo hi")), owner.pid

    first = asyncio.run(once())
    second = asyncio.run(once())
    assert (first[0].stdout, second[0].stdout) == ("hi\n", "hi\n")
    assert first[1] != second[1]
    assert not os.path.exists(f"/proc/{first[1]}")


CRAMPED = """
import asyncio, os, resource
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run

async def main():
    owner = Owner()
    command = Command(("true",), "/", {"PATH": "/usr/bin:/bin"})
    assert (await run(owner, command)).exit_code == 0
    while owner.children:
        await asyncio.sleep(0.01)
    held = len(os.listdir("/proc/self/fd"))
    words = set()
    for room in range(8):
        resource.setrlimit(resource.RLIMIT_NOFILE, (held - 1 + room, 4096))
        for tty in (False, True):
            result = await run(owner, Command(("true",), "/", command.env, tty=tty))
            words.add(result.error)
        while owner.children:
            await asyncio.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
        assert len(os.listdir("/proc/self/fd")) == held
    print(sorted(words - {None}), None in words)
    await owner.aclose()

asyncio.run(main())
"""


def test_no_room_for_descriptors(script: Callable[..., subprocess.Popen[str]]) -> None:
    out, err = script(CRAMPED).communicate(timeout=60)
    words = "cannot hand descriptors to `true`: Too many open files (os error 24)"
    assert (out, err) == (f"['{words}'] True\n", "")


FORGOTTEN = """
import asyncio, gc, os, sys
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.sessions.table import Sessions

async def main():
    owner = Owner()
    sessions = Sessions(owner)
    env = {"PATH": "/usr/bin:/bin"}
    for tty in (False, True):
        await sessions.exec(Command(("sleep", sys.argv[1]), "/", env, tty=tty), yield_ms=250)
    await run(owner, Command(("sh", "-c", "sleep 300 & echo"), "/", env))
    return owner.pid

loop = asyncio.new_event_loop()
helper = loop.run_until_complete(main())
loop.close()
gc.collect()
try:
    os.waitpid(-1, os.WNOHANG)
    print("a child is left")
except ChildProcessError:
    print("none")
print(os.path.exists(f"/proc/{helper}"), sorted(os.listdir("/proc/self/fd")))
"""


@pytest.mark.slow
def test_a_loop_closed_without_aclose(
    script: Callable[..., subprocess.Popen[str]], mark: object
) -> None:
    out, err = script(FORGOTTEN, str(mark)).communicate(timeout=60)
    assert (out, err) == ("none\nFalse ['0', '1', '2', '3']\n", "")


def test_nothing_slow_is_imported() -> None:
    code = (
        "import sys, toolrest.process.sessions.table, toolrest.process.shells.login_env\n"
        "print({'charset_normalizer', 'pydantic'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout == b"set()\n"


async def test_a_keeper_whose_answer_lies_unread_is_not_stuck(
    owner: Owner, sh: Sh, mark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the time for an answer is over before the loop has looked at the link."""
    child = await owner.start(sh(f"sleep {mark}"))
    await child.started()
    stuck: list[object] = []
    child.on_stuck = stuck.append

    async def busy(seconds: float | None = None) -> None:
        readable = select.poll()
        readable.register(child._link, select.POLLIN)
        readable.poll(60_000)  # the answer has come, and nothing else has run meanwhile

    monkeypatch.setattr("toolrest.process.child._ANSWER_LIMIT", 0.0)
    monkeypatch.setattr(child.wakeup, "wait", busy)
    assert await child.kill() == ()
    assert stuck == []
    assert child.gone
    for descriptor in child.outputs:
        os.close(descriptor)
