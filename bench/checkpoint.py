"""What a checkpoint costs: the first one, later ones, and a small folder, beside a plain walk."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from results import record
from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.agent.undo.watch import Watch
from toolrest.gate.bus import Bus
from toolrest.gate.output.redact import Redactor
from toolrest.sandbox.backends.engine import Enforced, all_full
from toolrest.sandbox.policy import SandboxPolicy

FILES = 50_000


def make(folder: Path, files: int) -> int:
    chance = random.Random(5)
    total = 0
    for number in range(files):
        place = folder / f"pkg{number // 500}" / f"sub{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        data = chance.randbytes(chance.randint(200, 8000))
        (place / f"f{number}.py").write_bytes(data)
        total += len(data)
    return total


def timed(work: Callable[[], object], times: int = 1) -> float:
    """The median in milliseconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1000


def plain_walk(folder: str) -> None:
    """os.walk and a stat of every file: what any look at the tree costs at least."""
    for top, _, names in os.walk(folder):
        for name in names:
            os.lstat(os.path.join(top, name))


def measure(files: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place, "work")
        work.mkdir()
        size = make(work, files)
        time.sleep(0.1)
        saved = Checkpoints(os.path.join(place, "home"), str(work))
        walk = timed(lambda: plain_walk(str(work)), 5)
        numbers: list[int] = []
        first = timed(lambda: numbers.append(saved.begin()))
        saved.end(numbers[0])
        again = timed(lambda: saved.end(saved.begin()), 5) / 2
        later = Checkpoints(os.path.join(place, "home"), str(work))
        cold = timed(lambda: numbers.append(later.begin()))
        later.end(numbers[-1])
    record(
        f"checkpoint-{files}",
        f"A checkpoint of {files:,} files",
        "ms",
        {
            "os.walk and lstat": walk,
            "toolrest, the first": first,
            "toolrest, each later one": again,
        },
        "What undo needs before a turn's first change. `bench/checkpoint.py`.",
    )
    print(f"{files:>7,} files, {size / 1e6:6.1f} MB   os.walk + lstat {walk:8.1f} ms")
    print(f"{'':>27} first checkpoint {first:7.1f} ms")
    print(f"{'':>27} each later one   {again:7.1f} ms")
    print(f"{'':>27} in a new process {cold:7.1f} ms")


def make_hooks(work: Path) -> frozenset[str]:
    """A repository with 50 hooks and 5 nested ones; the folders that hold a `.git`."""
    folders = [work, *(work / f"nested{number}" for number in range(5))]
    for folder in folders:
        subprocess.run(["git", "init", "-q", folder], check=True)
    for number in range(50):
        (work / ".git" / "hooks").mkdir(exist_ok=True)
        (work / ".git" / "hooks" / f"hook{number}").write_text("#!/bin/sh\n")
    return frozenset(map(str, folders))


async def watch(rounds: int = 200) -> None:
    """What a command costs where protected names are watched and nothing has changed."""
    with tempfile.TemporaryDirectory() as place:
        work = Path(place, "work")
        found = make_hooks(work)
        saver = SimpleNamespace(repositories=found, workspace=str(work))
        watch = Watch(os.path.join(place, "home"), str(work), "s", Bus(Redactor({})), saver)
        policy = SandboxPolicy.build(str(work), os.path.join(place, "session"))
        weak = all_full() | {"protected_paths": Enforced("none")}
        first = timed(lambda: watch.enter(policy, weak)())
        await asyncio.sleep(0.05)
        each = timed(lambda: watch.enter(policy, weak)(), rounds)
        await watch.aclose()
    print(f"50 hooks, 5 nested repositories   watching a command {each:6.2f} ms")
    print(f"{'':>33} recording them     {first:6.2f} ms")


if __name__ == "__main__":
    asyncio.run(watch())
    for count in [int(word) for word in sys.argv[1:]] or [20, 1000, FILES]:
        measure(count)
