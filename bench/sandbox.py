"""What does confinement cost? `true`, started in process, side by side in one run.

The baseline is bubblewrap with the very same arguments, started with nothing around it: what is
above it is ours. Peers are measured when they are installed (npm packages @openai/codex and
@anthropic-ai/sandbox-runtime); what could not be measured is printed as such.

    python bench/sandbox.py [rounds] [--peers FOLDER]
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from results import record
from toolrest.policy.paths.policy import PathPolicy
from toolrest.process.command import Command
from toolrest.process.helper.wire import MASKS_FD
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import bundled_bwrap, bundled_rg

ENV = {"PATH": "/usr/bin:/bin", "HOME": os.path.expanduser("~"), "LANG": "C.UTF-8"}
TARGET = 1.3
Once = Callable[[], Awaitable[None]]


def place(command: Command) -> tuple[list[tuple[int, int]], socket.socket]:
    """What a command finds open, each at a number above all targets.

    Memory files, nothing where it reports its start, and the answer to one that waits.
    """
    opened = [(number, os.open(os.devnull, os.O_WRONLY)) for number, _ in command.fds]
    for number, content in command.files:
        opened.append((number, os.memfd_create("bench", 0)))
        os.write(opened[-1][1], content)
        os.lseek(opened[-1][1], 0, os.SEEK_SET)
    ours, its = socket.socketpair()
    ours.send(b"\n")  # nothing is looked at and nothing more is masked here
    opened.append((MASKS_FD, its.detach()))
    made = [(number, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)) for number, fd in opened]
    for _, fd in opened:
        os.close(fd)
    return made, ours


def bare(command: Command, held: object = None) -> Once:
    """posix_spawn and wait: the least that starting a program can cost.

    `held` keeps what the arguments name as long as this can be called.
    """

    async def once(_held: object = held) -> None:
        argv, (placed, answer) = command.argv, place(command)
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in placed]
        pid = os.posix_spawn(argv[0], argv, command.env, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        answer.close()
        for _, fd in placed:
            os.close(fd)
        if status:
            raise RuntimeError(f"{argv[0]} ended with {os.waitstatus_to_exitcode(status)}")

    return once


def spawned(argv: list[str], cwd: str) -> Once:
    """A command line, a peer's or our own."""

    # srt looks for bwrap and rg on PATH; ours are inside packages.
    homes = [os.path.dirname(p) for p in (bundled_bwrap(), bundled_rg()) if p]
    env = {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *homes])}

    async def once() -> None:
        subprocess.run(
            argv, cwd=cwd, env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True
        )

    return once


def confined(sandbox: SessionSandbox) -> Once:
    """Confining only, then the bare start: what this room adds to bubblewrap."""
    command = Command(("/bin/true",), sandbox.policy.workspace, ENV)

    async def once() -> None:
        ready = sandbox.confine(command)
        try:
            await bare(ready.command)()
        finally:
            ready.release()

    return once


def through_owner(owner: Owner, sandbox: SessionSandbox | None, cwd: str) -> Once:
    """As a tool call starts it: confined, handed to the owner of all processes, awaited."""
    command = Command(("/bin/true",), cwd, ENV)

    async def once() -> None:
        ready = sandbox.confine(command, late=True) if sandbox else None
        child = await owner.start(ready.command if ready else command, merge=True)
        ended = await child.wait()
        for fd in child.outputs:
            os.close(fd)
        if ready is not None:
            ready.release()
        if ended is None or ended.exit_code != 0:
            raise RuntimeError(f"ended with {ended}")

    return once


def native_codex(folder: Path | None, workspace: str) -> dict[str, Once | str]:
    """The binary inside the npm package, without the node program around it."""
    pattern = "node_modules/@openai/codex-*/vendor/*/**/codex"
    for path in folder.glob(pattern) if folder else ():
        if path.is_file() and os.access(path, os.X_OK):
            argv = [str(path), "sandbox", "-P", ":workspace", "-C", workspace, "--", "true"]
            return {"codex sandbox (binary)": spawned(argv, workspace)}
    return {"codex sandbox (binary)": "not installed: --peers FOLDER with the npm package"}


def peers(folder: Path | None, workspace: str) -> dict[str, Once | str]:
    """`codex sandbox` and `srt`, or why they cannot be measured."""
    found: dict[str, Once | str] = {}
    bins = folder / "node_modules/.bin" if folder else None

    def program(name: str) -> str | None:
        if bins and (bins / name).exists():
            return str(bins / name)
        return shutil.which(name)

    codex = program("codex")
    found["codex sandbox (npm)"] = (
        spawned([codex, "sandbox", "-P", ":workspace", "-C", workspace, "--", "true"], workspace)
        if codex
        else "not installed: npm install @openai/codex"
    )
    found |= native_codex(folder, workspace)
    srt = program("srt")
    if srt is None:
        found["srt (npm)"] = "not installed: npm install @anthropic-ai/sandbox-runtime"
    else:
        settings = Path(workspace).parent / "srt.json"
        rules = {"allowWrite": [workspace], "denyRead": [], "denyWrite": []}
        network: dict[str, list[str]] = {"allowedDomains": [], "deniedDomains": []}
        settings.write_text(json.dumps({"network": network, "filesystem": rules}))
        found["srt (npm)"] = spawned([srt, "--settings", str(settings), "true"], workspace)
    return found


async def measure(rows: dict[str, Once | str], rounds: int) -> dict[str, list[float] | str]:
    """Every row once per round, so that a busy machine is unfair to all of them alike."""
    times: dict[str, list[float] | str] = {}
    for name, once in rows.items():
        if isinstance(once, str):
            times[name] = once
            continue
        try:
            for _ in range(3):
                await once()
            times[name] = []
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", b"") or b""
            times[name] = f"cannot be measured: {said.decode()[-120:].strip() or error}"
    slow = {name for name in times if "(npm)" in name or name.startswith("`")}
    for turn in range(rounds):
        for name, once in rows.items():
            taken = times[name]
            if isinstance(once, str) or isinstance(taken, str) or (name in slow and turn % 5):
                continue
            begun = time.perf_counter()
            await once()
            taken.append((time.perf_counter() - begun) * 1000)
    return times


def build(base: Path) -> tuple[dict[str, Once | str], str]:
    """The rows, in a workspace that is a git repository."""
    workspace = base / "ws"
    workspace.mkdir()
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    paths = PathPolicy(str(workspace))
    rows: dict[str, Once | str] = {"plain exec": bare(Command(("/bin/true",), "/", {}))}
    policy = SandboxPolicy.from_paths(paths, str(base / "s"), cache_dir=str(base / "cache"))
    registry, owner = str(base / "registry"), Owner()
    rows["plain exec, through the owner"] = through_owner(owner, None, str(workspace))
    try:
        bubblewrap = SessionSandbox(policy, backend="bubblewrap", registry=registry)
        held = bubblewrap.confine(Command(("/bin/true",), str(workspace), ENV))
        rows["bwrap, the very same arguments"] = bare(held.command, held)
        rows["toolrest, bubblewrap"] = confined(
            SessionSandbox(policy, backend="bubblewrap", registry=registry)
        )
        rows["toolrest, bubblewrap, through the owner"] = through_owner(
            owner, SessionSandbox(policy, backend="bubblewrap", registry=registry), str(workspace)
        )
    except SandboxUnavailable as error:
        rows["toolrest, bubblewrap"] = f"cannot be measured: {error}"
    try:
        landlock = SessionSandbox(policy, backend="landlock", registry=registry)
        landlock.choose()
        rows["toolrest, Landlock, through the owner"] = through_owner(
            owner, landlock, str(workspace)
        )
    except SandboxUnavailable as error:
        rows["toolrest, Landlock, through the owner"] = f"cannot be measured: {error}"
    command = str(Path(sys.executable).parent / "toolrest")
    rows["`toolrest sandbox -- true`"] = spawned([command, "sandbox", "--", "true"], str(workspace))
    return rows, str(workspace)


def show(times: dict[str, list[float] | str]) -> None:
    """A table; the factor is against bubblewrap with the same arguments."""
    base = times.get("bwrap, the very same arguments")
    print(f"{'`true`':42} {'median ms':>9} {'min':>7}   against bwrap")
    for name, taken in times.items():
        if isinstance(taken, str):
            print(f"{name:42} {taken}")
            continue
        middle = statistics.median(taken)
        factor = f"{middle / statistics.median(base):.2f}x" if isinstance(base, list) else ""
        print(f"{name:42} {middle:9.2f} {min(taken):7.2f}   {factor}")
    medians = {n: statistics.median(taken) for n, taken in times.items() if isinstance(taken, list)}
    record(
        "sandbox",
        "Confinement alone",
        "ms",
        {name.strip("`"): value for name, value in medians.items()},
        "`true` in a sandbox, without the gate. `bench/sandbox.py`.",
    )
    against_peers(times)
    ours = times.get("toolrest, bubblewrap")
    if isinstance(ours, list) and isinstance(base, list):
        reached = statistics.median(ours) / statistics.median(base)
        print(f"target: {TARGET}x bwrap; reached: {reached:.2f}x")


def against_peers(times: dict[str, list[float] | str]) -> None:
    """How many times longer each peer takes than a tool call's start does."""
    ours = times.get("toolrest, bubblewrap, through the owner")
    if not isinstance(ours, list):
        return
    for name, taken in times.items():
        if isinstance(taken, list) and name.startswith(("codex", "srt")):
            ratio = statistics.median(taken) / statistics.median(ours)
            print(f"{name}: {ratio:.1f} times as long as toolrest, bubblewrap, through the owner")


async def main() -> None:
    arguments = sys.argv[1:]
    folder = None
    if "--peers" in arguments:
        at = arguments.index("--peers")
        folder = Path(arguments[at + 1])
        del arguments[at : at + 2]
    rounds = int(arguments[0]) if arguments else 60
    parent = "/var/lib" if os.geteuid() == 0 else os.path.expanduser("~")
    base = Path(tempfile.mkdtemp(prefix="toolrest-bench-", dir=parent))
    try:
        rows, workspace = build(base)
        rows |= peers(folder, workspace)
        show(await measure(rows, rounds))
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(base)


if __name__ == "__main__":
    asyncio.run(main())
