"""Stored copies of a task's work come in order, and hold up no heartbeat."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.batch.test_tasks import repository

from toolrest.batch import attempt as attempt_module
from toolrest.batch.child import ChildEnd
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.tasks.task import BatchTask

DONE = {"status": "completed", "reason": "done", "text": "ok"}
PATIENCE = 60.0
SESSION = "sessions/2026/01/01/rollout-2026-01-01T00-00-00-x.jsonl"
META: Any = {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "x"}}


class SlowPatch(FolderStore):
    """A store in which the first patch takes until a condition is met; counts heartbeats."""

    longest = 10.0

    def __init__(self, path: str, is_over: Callable[[SlowPatch], bool]) -> None:
        super().__init__(path)
        self.is_over = is_over
        self.changed = threading.Condition()
        self.beats = 0
        self.patches = 0
        self.stored: list[str] = []
        self.began = threading.Event()

    def write(self, name: str, data: bytes) -> None:
        if name.endswith("patch.diff"):
            self._wait()
        super().write(name, data)
        with self.changed:
            self.beats += "lease-" in name
            self.stored.append(name.rpartition("/")[2])
            self.changed.notify_all()

    def _wait(self) -> None:
        with self.changed:
            self.patches += 1
            if self.patches == 1:
                self.beats = 0
                self.began.set()
                self.changed.wait_for(lambda: self.is_over(self), self.longest)

    def create(self, name: str, data: bytes) -> bool:
        made = super().create(name, data)
        with self.changed:
            self.stored.append(name.rpartition("/")[2])
            self.changed.notify_all()
        return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a task whose session goes on in its worktree once the first patch is being stored."""
    repository(tmp_path / "repo")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    task = BatchTask("t", "p", None, repo=str(tmp_path / "repo"))

    def start(store: SlowPatch, lease_seconds: float = 4.0) -> asyncio.Task[Any]:
        async def run_child(arguments: list[str], *, env: Any, on_line: Any, **_: Any) -> ChildEnd:
            work = Path(arguments[arguments.index("--cd") + 1], "work.txt")
            work.write_text("half of it\n")
            journal = Path(env["TOOLREST_HOME"], SESSION)
            journal.parent.mkdir(parents=True)
            journal.write_text(json.dumps(META) + "\n")
            on_line(b'{"type":"thread.started","thread_id":"x"}\n')
            assert await asyncio.to_thread(store.began.wait, PATIENCE)
            work.write_text("all of it\n")
            journal.write_text(json.dumps(META) + "\n\n")
            return ChildEnd(0, dict(DONE))

        monkeypatch.setattr(attempt_module, "run_child", run_child)
        options = RunOptions(scratch=str(tmp_path / "scratch"), lease_seconds=lease_seconds)
        return asyncio.ensure_future(run_task(task, store, options))

    return start


@pytest.mark.slow
async def test_a_copy_that_is_late_does_not_replace_what_the_task_ended_with(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    def is_over(store: SlowPatch) -> bool:
        return "result.json" in store.stored or store.beats > 2

    store = SlowPatch(str(tmp_path / "store"), is_over)
    end = await run(store)
    assert (end.outcome, end.result["failure"]) == ("done", None), end.result
    with store.changed:
        ended = partial(store.stored.count, "patch.diff")
        assert store.changed.wait_for(lambda: ended() == store.patches >= 2, PATIENCE)
    assert b"+all of it" in (store.read("tasks/t/patch.diff") or b"")
    assert store.stored[-1] == "result.json"


@pytest.mark.slow
async def test_the_heartbeat_goes_on_while_a_copy_is_stored(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    store = SlowPatch(str(tmp_path / "store"), lambda store: store.beats > 2)
    end = await run(store)
    assert (end.outcome, end.result["failure"]) == ("done", None), end.result
    assert store.beats > 2


@pytest.mark.slow
async def test_a_stopped_task_leaves_no_write_behind(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """Its lease is given back after the copy that was being stored."""

    def lease() -> Any:
        return json.loads(FolderStore(store.path).read("tasks/t/lease-1.json") or b"")

    store = SlowPatch(str(tmp_path / "store"), lambda _: lease()["released"])
    store.longest = 1.0
    running = run(store)
    assert await asyncio.to_thread(store.began.wait, PATIENCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "patch.diff" in store.stored
    assert store.stored[-1] == "lease-1.json"
    assert lease()["released"]


@pytest.mark.slow
async def test_what_a_quiet_session_has_done_is_stored_before_its_next_heartbeat(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """It prints one line, and then the model thinks for long."""
    store = SlowPatch(str(tmp_path / "store"), lambda _: True)
    end = await run(store, lease_seconds=4000.0)
    assert end.outcome == "done"
    assert store.beats == 2, "those of the end"
