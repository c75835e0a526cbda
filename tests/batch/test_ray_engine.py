"""What the Ray engine does with the ends of Ray tasks, on threads in place of a cluster.

`test_ray.py` has a real one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolrest.batch import attempt as attempt_module
from toolrest.batch.child import ChildEnd
from toolrest.batch.engine import record_tasks
from toolrest.batch.run_task import RunOptions
from toolrest.batch.stores.lease import Runner
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.stores.totals import Totals
from toolrest.batch.tasks.task import BatchTask
from toolrest.errors import ConfigError

DONE = {"status": "completed", "reason": "done", "text": "ok"}
PATIENCE = 60.0


class RayError(Exception):
    """As in Ray, like the next ones."""


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class TaskUnschedulableError(RayError):
    pass


class TaskCancelledError(RayError):
    pass


class WorkerCrashedError(RayError):
    pass


class FakeRay(types.ModuleType):
    """One worker; a task that waits for it can be cancelled."""

    def __init__(self) -> None:
        super().__init__("ray")
        classes = (RayError, RayTaskError, TaskUnschedulableError, TaskCancelledError)
        self.exceptions = types.SimpleNamespace(**{one.__name__: one for one in classes})
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.end: Callable[[], None] = lambda: None
        """Called before each task."""
        self.submitted = 0
        self.has_cancelled = threading.Event()

    def init(self, **_: Any) -> None:
        """There is no cluster."""

    shutdown = init

    def remote(self, **_: Any) -> Any:
        """A decorator."""

        def run(call: Any, *arguments: Any) -> Any:
            self.end()
            return call(*arguments)

        def submit(call: Any, *arguments: Any) -> Any:
            self.submitted += 1
            return self.pool.submit(run, call, *arguments)

        return lambda call: types.SimpleNamespace(remote=lambda *words: submit(call, *words))

    def wait(self, references: Any, num_returns: int, timeout: float) -> Any:
        """Those that are done, and the others."""
        how = concurrent.futures.FIRST_COMPLETED
        found = concurrent.futures.wait(references, timeout, how)
        return list(found.done), list(found.not_done)

    def get(self, reference: Any) -> Any:
        """What a task returned."""
        try:
            return reference.result()
        except concurrent.futures.CancelledError:
            raise TaskCancelledError from None
        except RayError:
            raise
        except Exception as error:
            raise RayTaskError(error) from error

    def cancel(self, reference: Any) -> None:
        """Take back a task that waits."""
        reference.cancel()
        self.has_cancelled.set()


class Cluster:
    """An engine on the fake, a store, and sessions that do nothing."""

    def __init__(self, fake: FakeRay, module: Any, base: Path) -> None:
        self.ray, self.module = fake, module
        self.store = FolderStore(str(base / "store"))
        (base / "place").mkdir()
        self.tasks = [BatchTask(f"t{at}", "p", str(base / "place")) for at in range(5)]
        self.said: list[str] = []

    async def run(
        self, count: int, totals: type[Totals] = Totals, options: RunOptions | None = None
    ) -> Any:
        """Run tasks, all of them handed over at once; returns the counts."""
        where = self.module.RayOptions(None, 1, 1, {})
        own = totals(self.store, Runner.here())
        engine = self.module.RayEngine(
            self.store, options or RunOptions(), own, where, self.said.append
        )
        record_tasks(self.store, self.tasks[:count])
        await engine.run(self.tasks[:count], 10)
        return engine.counts


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delitem(sys.modules, "toolrest.batch.ray_engine", raising=False)
    module = importlib.import_module("toolrest.batch.ray_engine")
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.05)
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    async def run_child(*_: Any, **__: Any) -> ChildEnd:
        return ChildEnd(0, dict(DONE))

    monkeypatch.setattr(attempt_module, "run_child", run_child)
    yield Cluster(fake, module, tmp_path)
    fake.pool.shutdown()
    sys.modules.pop("toolrest.batch.ray_engine")


async def test_tasks_that_wait_for_a_worker_do_not_begin_after_the_limit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []

    class One(Totals):
        def used_up(self) -> str | None:
            return "enough" if self.own.done else None

    async def run_child(*_: Any, **__: Any) -> ChildEnd:
        began.append(1)
        if len(began) > 1:
            await asyncio.to_thread(cluster.ray.has_cancelled.wait, PATIENCE)
        return ChildEnd(0, dict(DONE))

    monkeypatch.setattr(attempt_module, "run_child", run_child)
    counts = await cluster.run(5, One)
    assert (counts.stopped, len(began), counts.done, counts.open) == ("enough", 2, 2, 3)
    assert cluster.store.folders("tasks", "result.json") == {"t0", "t1"}
    assert cluster.said == []


@pytest.mark.slow
async def test_a_task_whose_workers_are_always_lost_is_given_up(cluster: Cluster) -> None:
    def lost() -> None:
        raise WorkerCrashedError("the worker died: signal 9")

    cluster.ray.end = lost
    counts = await cluster.run(1, options=RunOptions(retries={"killed": 0}))
    assert (counts.failed, counts.open, cluster.ray.submitted) == (1, 1, 9)
    assert cluster.said == [
        "t0: internal: its worker was lost 9 times: the worker died: signal 9",
    ]


async def test_a_task_that_fits_no_node_is_a_failure(cluster: Cluster) -> None:
    def nowhere() -> None:
        raise TaskUnschedulableError("no node has the label gpu=yes")

    cluster.ray.end = nowhere
    counts = await cluster.run(1)
    assert (counts.failed, cluster.ray.submitted) == (1, 1)
    assert cluster.said == ["t0: internal: Ray cannot place it: no node has the label gpu=yes"]


async def test_a_store_that_a_node_does_not_share_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    task, options = msgspec.json.encode(cluster.tasks[0]), msgspec.json.encode(RunOptions())
    with pytest.raises(ConfigError, match=rf"the store {private} on .+ has no tasks\.jsonl"):
        cluster.module.run_remotely(str(private), task, options)
    assert not private.exists()
    cluster.ray.end = lambda: cluster.store.delete("tasks.jsonl")
    counts = await cluster.run(1)
    assert (counts.failed, counts.done, counts.open) == (1, 0, 1)
    assert "give --store a folder or URL that all nodes share" in cluster.said[0]
