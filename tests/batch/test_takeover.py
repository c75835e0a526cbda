"""Runners that hang, are stopped or die at an unlucky moment: no task has two sessions at once."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.batch.test_store_order import DONE, META, PATIENCE, SESSION

from toolrest.batch import attempt as attempt_module
from toolrest.batch.child import ChildEnd
from toolrest.batch.failures import Retry
from toolrest.batch.reports.retry import retry_tasks
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores import lease as lease_module
from toolrest.batch.stores.lease import Lease, Leases, Runner
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.tasks import journal as journal_module
from toolrest.batch.tasks.task import BatchTask


class Sessions:
    """Sessions that end when they may; each leaves a journal."""

    def __init__(self) -> None:
        self.arguments: list[list[str]] = []
        self.begun = threading.Event()
        self.may_end = True
        self.running = 0

    async def run_child(self, arguments: list[str], *, env: Any, **_: Any) -> ChildEnd:
        self.arguments.append(arguments)
        journal = Path(env["TOOLREST_HOME"], SESSION)
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.write_text(json.dumps(META) + "\n")
        self.running += 1
        self.begun.set()
        try:
            if not self.may_end:
                await asyncio.Event().wait()
        finally:
            self.running -= 1
        return ChildEnd(0, dict(DONE))


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    (tmp_path / "home").mkdir()
    (tmp_path / "place").mkdir()
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    found = Sessions()
    monkeypatch.setattr(attempt_module, "run_child", found.run_child)
    return found


@pytest.fixture
def task(tmp_path: Path) -> BatchTask:
    return BatchTask("t", "p", str(tmp_path / "place"))


class Hanging(FolderStore):
    """A store whose heartbeats hang once a session runs."""

    def __init__(self, path: str, begun: threading.Event) -> None:
        super().__init__(path)
        self.begun = begun
        self.goes_on = threading.Event()

    def write(self, name: str, data: bytes) -> None:
        if "lease-" in name and self.begun.is_set():
            self.goes_on.wait(PATIENCE)
        super().write(name, data)


@pytest.mark.slow
async def test_a_session_ends_before_its_lease_when_the_store_hangs(
    sessions: Sessions, task: BatchTask, tmp_path: Path
) -> None:
    """No error comes, and no answer: others take the lease for a dead runner's."""
    sessions.may_end = False
    store = Hanging(str(tmp_path / "store"), sessions.begun)
    end = await run_task(task, store, RunOptions(lease_seconds=2.0))
    store.goes_on.set()
    assert (end.outcome, end.problem) == ("lost", "the store does not answer")
    assert sessions.running == 0
    assert not store.has("tasks/t/result.json")


def stopped_runner(store: FolderStore, rows: list[Any]) -> Lease:
    """A runner of this machine that was stopped: its process is there, its heartbeat is old."""
    leases = Leases(store, "tasks/t", Runner.here())
    lease = leases.take()
    assert lease is not None
    lease.attempts, lease.beat = rows, time.time() - 3600
    leases.put(lease)
    return lease


async def test_a_session_of_a_stopped_runner_is_not_begun_twice(
    sessions: Sessions, task: BatchTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `exec` runs on, and will come to its end."""
    monkeypatch.setattr(journal_module, "_UNLOCK_SECONDS", 0.0)
    store = FolderStore(str(tmp_path / "store"))
    assert (await run_task(task, store, RunOptions(keep=True))).outcome == "done"
    (home,) = (tmp_path / "home" / "batch").glob("*/t/home")
    rows = json.loads(store.read("tasks/t/result.json") or b"")["attempts"]
    for row in rows:
        row["journal"] = SESSION
    store.delete("tasks/t/result.json")
    monkeypatch.setattr(journal_module, "is_usable", lambda _: True)
    stopped = stopped_runner(store, rows)
    with (home / SESSION).open("rb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        end = await run_task(task, store, RunOptions())
    assert end.outcome == "busy"
    assert (home.parent / "place").exists(), "what it works on is left alone"
    assert not store.has("tasks/t/result.json")
    latest = Leases(store, "tasks/t", Runner.here()).latest()
    assert latest is not None
    assert (latest.released, len(latest.attempts)) == (True, 1)
    assert not Leases(store, "tasks/t", stopped.runner).beat(stopped), "it learns of that"
    assert (await run_task(task, store, RunOptions())).outcome == "done"
    assert [("--resume" in words) for words in sessions.arguments] == [False, True]


async def test_a_store_that_fails_for_a_moment_fails_no_task_that_goes_on(
    sessions: Sessions, task: BatchTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have stored is read more often than an error of ours is tried again."""
    failures = iter(range(4))

    class Failing(FolderStore):
        def read(self, name: str) -> bytes | None:
            if name.endswith("audit.jsonl") and next(failures, None) is not None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(name)

    monkeypatch.setattr(Retry, "wait", lambda *_: 0.0)
    store = Failing(str(tmp_path / "store"))
    stopped_runner(store, [{"number": 1, "started": 1.0}])
    end = await run_task(task, store, RunOptions())
    assert end.result is not None
    outcomes = [row["outcome"] for row in end.result["attempts"]]
    assert outcomes == ["killed", *4 * ["workspace"], "done"]


class DyingAtTheEnd(FolderStore):
    """A store that a runner never clears: it dies after the result, before anything else."""

    def delete(self, name: str) -> None:
        if "lease-" in name:
            raise OSError("the runner is dead")
        super().delete(name)


async def test_what_a_runner_left_that_died_at_the_end_does_not_count_after_a_retry(
    sessions: Sessions, task: BatchTask, tmp_path: Path
) -> None:
    """Its lease would say that the session goes on."""
    store = FolderStore(str(tmp_path / "store"))
    assert (await run_task(task, DyingAtTheEnd(store.path), RunOptions())).outcome == "done"
    assert store.has("tasks/t/lease-1.json")
    left = Leases(store, "tasks/t", Runner.here()).latest()
    assert left is not None
    assert retry_tasks(store, ["t"], fresh=True) == 1
    end = await run_task(task, store, RunOptions())
    assert end.result is not None
    earlier = [row.get("earlier_run", False) for row in end.result["attempts"]]
    assert earlier == [True, False]
    assert not [name for name in store.files("tasks/t") if name.startswith("lease")]


def test_a_runner_that_wakes_after_a_retry_removes_no_lease_of_another(tmp_path: Path) -> None:
    """It was stopped between its result and the removal of its lease."""
    store, result = FolderStore(str(tmp_path)), {"failure": "budget", "attempts": []}
    asleep = Leases(store, "tasks/t", Runner.here())
    lease = asleep.take()
    assert lease is not None
    store.write("tasks/t/result.json", json.dumps(result).encode())
    assert retry_tasks(store, ["t"]) == 1
    other = Leases(store, "tasks/t", Runner.here())
    held = other.take()
    assert held is not None
    asleep.clear(lease)
    assert other.beat(held)


def test_a_half_written_file_of_a_dead_runner_does_not_stay(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    stopped_runner(store, [])
    store.write("tasks/t/answer.md.0123456789ab.tmp", b"half")
    store.write("tasks/t/answer.md", b"whole")
    leases = Leases(store, "tasks/t", Runner.here())
    lease = leases.take()
    assert lease is not None
    leases.clear(lease)
    assert store.files("tasks/t") == ["answer.md"]


def test_a_dead_runner_whose_clock_was_far_ahead_blocks_its_task_for_one_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = FolderStore(str(tmp_path)), [1000.0]
    now = SimpleNamespace(time=lambda: clock[0], monotonic=lambda: clock[0])
    monkeypatch.setattr(lease_module, "time", now)
    far = replace(Runner.here(), machine="another")
    held = Leases(store, "tasks/t", far, 60)
    held.put(Lease(1, far, 999_999.0))
    for beat, later in ((999_999.0, 59.0), (1_000_050.0, 30.0), (1_000_050.0, 59.0)):
        held.put(Lease(1, far, beat))
        assert Leases(store, "tasks/t", Runner.here()).take() is None
        clock[0] += later
    clock[0] += 2.0
    assert Leases(store, "tasks/t", Runner.here()).take() is not None


def test_what_a_store_has_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a machine that crashes leaves a result without content, which counts as one."""
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    store = FolderStore(str(tmp_path))
    store.write("tasks/t/patch.diff", b"work")
    assert store.create("tasks/t/result.json", b"{}")
    store.write("tasks/t/lease-1.json", b"a heartbeat waits for no disk")
    store.write("runners/a.json", b"nor does this")
    names = [os.path.basename(path).split(".")[0] for path in synced]
    assert names == ["patch", "result"]
