"""A batch as a person runs it, a server that counts requests by task and turn, and /proc."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import machine
from tests.cli.conftest import Desk, desk, serve

from toolrest.testing import Call, ScriptedServer

__all__ = ["desk", "serve"]

PATIENCE = 60.0


def until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> Any:
    """Wait for something, generously."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(what or "it did not happen")


def turn_of(body: Any) -> tuple[str, int]:
    """The task that a request is for, and how many replies came before it."""
    items = body["input"]
    texts = [part["text"] for item in items for part in item.get("content") or () if "text" in part]
    task = next(m[0] for text in texts if (m := re.search(r"task-\d+", text)))
    return task, sum(item.get("type") == "function_call_output" for item in items)


def python_with(name: str, *packages: str) -> str:
    """A Python with packages that are too large for ours, made once.

    What Toolrest needs is borrowed from this environment.
    """
    folder = Path(sys.prefix) / name
    folder.mkdir(exist_ok=True)
    python = folder / "bin" / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [str(python), "-m", "pip", "install", "-q", *packages]
            env = {**os.environ, "HOME": machine.OWN_HOME}
            made = subprocess.run(pip, env=env, capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"pip install {packages[0]}: {made.stderr.strip()[-300:]}")
            (site,) = folder.glob("lib/python3*/site-packages")
            ours = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
            paths = (machine.REPOSITORY / "src", *ours)
            (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in paths))
            (folder / "done").touch()
    return str(python)


PLAN = {"plan": [{"step": "look", "status": "in_progress"}]}
"""For a call that needs no sandbox."""


def worker(turns: int) -> Callable[[Any], Any]:
    """A model that makes calls before it answers."""

    def reply(body: Any) -> Any:
        task, turn = turn_of(body)
        return f"{task} is done" if turn >= turns - 1 else [Call("update_plan", PLAN)]

    return reply


class Tree:
    """The processes below one, so that it can be seen whether all of them have ended."""

    def __init__(self, root: int) -> None:
        self.born: dict[int, str] = {}
        self.root = root
        self.look()

    def look(self) -> None:
        """Note the processes that are there now."""
        parents = {pid: row for pid in _pids() if (row := _stat(pid))}
        wanted = {self.root}
        while found := {p for p, row in parents.items() if int(row[1]) in wanted} - wanted:
            wanted |= found
        self.born |= {pid: parents[pid][19] for pid in wanted if pid in parents}

    def left(self) -> list[int]:
        """Those that still run."""
        rows = {pid: _stat(pid) for pid in self.born}
        return [
            pid
            for pid, row in rows.items()
            if row and row[0] not in "ZX" and row[19] == self.born[pid]
        ]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def orphans(place: Path) -> list[int]:
    """Processes that have a folder in their arguments."""
    found = []
    for pid in _pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(place) in words and pid != os.getpid():
            found.append(pid)
    return found


class Bench:
    """A desk with tasks and a store."""

    def __init__(self, desk: Desk, server: ScriptedServer, base: Path) -> None:
        self.desk, self.server, self.base = desk, server, base
        self.store = base / "store"
        self.file = base / "tasks.jsonl"

    def tasks(self, count: int, **more: Any) -> list[str]:
        """Write tasks; returns their ids."""
        names = [f"task-{number}" for number in range(count)]
        rows = [{"id": name, "prompt": name, **more} for name in names]
        self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return names

    def words(self, *more: str) -> list[str]:
        """The command line of a run."""
        scratch = str(self.base / "scratch")
        return ["batch", str(self.file), "--store", str(self.store), "--scratch", scratch, *more]

    def run(self, *more: str, **options: Any) -> Any:
        """Run the batch to its end."""
        return self.desk.run(*self.words(*more), **options)

    def start(self, *more: str, **options: Any) -> subprocess.Popen[str]:
        """Start the batch and leave it running."""
        return self.desk.start(*self.words(*more), **options)

    def kill(self, process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
        """End a run by a signal; nothing that it started may be left."""
        tree = Tree(process.pid)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
        until(lambda: not tree.left(), f"processes are left: {tree.left()}")
        # One may have been started after the look at the tree; it ends as the others do.
        until(lambda: not orphans(self.base), f"processes are left: {orphans(self.base)}")

    def results(self) -> dict[str, Any]:
        """The results by id."""
        found = [json.loads(path.read_bytes()) for path in self.store.glob("tasks/*/result.json")]
        return {row["id"]: row for row in found}

    def turns(self) -> list[tuple[str, int]]:
        """All requests so far: task and turn."""
        return [turn_of(request.body) for request in list(self.server.requests)]

    def finished_turns(self) -> dict[str, int]:
        """How many replies each task has on record, finished or not."""
        found: dict[str, int] = {}
        places = [*self.desk.home.glob("batch/*/*/home/sessions/**/rollout-*.jsonl")]
        for path in (*places, *self.store.glob("tasks/*/journal.jsonl")):
            text = path.read_text()
            task = re.search(r"task-\d+", text)
            count = text.count('"type":"token_count"')
            if task is not None:
                found[task[0]] = max(found.get(task[0], 0), count)
        return found

    def artifacts(self, name: str) -> set[str]:
        """The names of a task's files in the store."""
        return {path.name for path in (self.store / "tasks" / name).iterdir()}


@pytest.fixture
def bench(desk: Desk, serve: Any, tmp_path: Path) -> Callable[..., Bench]:
    """Makes a bench whose server answers with a function."""

    def make(reply: Any, most: int = 10_000, **more: Any) -> Bench:
        return Bench(desk, serve([reply] * most, **more), tmp_path)

    return make
