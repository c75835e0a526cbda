"""The Ray engine: each task is a Ray task that calls `run_task`, somewhere in a cluster.

Ray places them, and starts one again whose worker or node was lost; the lease and the journal in
the store make that harmless. The extra `ray` brings it; workers need Toolrest and their settings.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import ray
from msgspec import Struct

from toolrest.batch.engine import Bookkeeping, finished_keys
from toolrest.batch.run_task import RunOptions, TaskEnd, run_task, task_folder
from toolrest.batch.stores.lease import Leases, Runner
from toolrest.batch.stores.store import Store, open_store
from toolrest.batch.stores.totals import Totals
from toolrest.batch.tasks.task import BatchTask
from toolrest.errors import ConfigError

_LOST_WORKERS = 3
"""How often Ray itself starts a task again whose worker died; after that we do."""
_WAIT_SECONDS = 1.0


class RayOptions(Struct):
    """Where and with what tasks run: fractions of CPUs, memory in GB, labels of nodes."""

    address: str | None
    cpus: float
    memory: float
    labels: Mapping[str, str]

    def of_task(self) -> dict[str, Any]:
        """Options of a Ray task."""
        more: dict[str, Any] = {"label_selector": dict(self.labels)} if self.labels else {}
        return {
            "num_cpus": self.cpus,
            "memory": int(self.memory * 1e9),
            "max_retries": _LOST_WORKERS,
            "scheduling_strategy": "SPREAD",
            **more,
        }


def run_remotely(url: str, task: bytes, options: bytes) -> bytes:
    """Run one task in a Ray worker; its children die with the worker."""
    store = open_store(url)
    try:
        is_shared = store.has("tasks.jsonl")
    except OSError as error:
        problem = error.strerror or str(error)
        return msgspec.json.encode(TaskEnd("unstored", problem=problem))
    if not is_shared:
        raise ConfigError(
            f"the store {url} on {socket.gethostname()} has no tasks.jsonl, so it is not the one "
            "that the batch was started with: give --store a folder or URL that all nodes share"
        )
    end = asyncio.run(
        run_task(
            msgspec.json.decode(task, type=BatchTask),
            store,
            msgspec.json.decode(options, type=RunOptions),
        )
    )
    return msgspec.json.encode(end)


class RayEngine(Bookkeeping):
    """Runs tasks on a Ray cluster; `jobs` is how many are handed to Ray at a time."""

    def __init__(
        self,
        store: Store,
        options: RunOptions,
        totals: Totals,
        where: RayOptions,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(store, totals, say)
        self._options = options
        self._where = where
        self._runner = Runner.here()
        self._losses: Counter[str] = Counter()
        self._has_taken_back = False

    async def run(self, tasks: Sequence[BatchTask], jobs: int) -> None:
        """All that have no result yet."""
        # In this thread: in another one Ray warns that it cannot handle SIGTERM, which we do.
        ray.init(address=self._where.address or "auto", log_to_driver=False, logging_level=30)
        with self.stopping.cancels_this_task():
            watching = asyncio.create_task(self.watch())
            running: dict[Any, BatchTask] = {}
            try:
                await self._all(tasks, jobs, running)
            except asyncio.CancelledError:
                await asyncio.to_thread(_cancel, list(running))
                raise
            finally:
                watching.cancel()
                await self.end()
                await asyncio.to_thread(ray.shutdown)

    async def _all(
        self, tasks: Sequence[BatchTask], jobs: int, running: dict[Any, BatchTask]
    ) -> None:
        finished = await asyncio.to_thread(finished_keys, self.store)
        waiting = deque(task for task in tasks if task.key not in finished)
        self.counts.total, self.counts.had_result = len(tasks), len(tasks) - len(waiting)
        remote = ray.remote(**self._where.of_task())(run_remotely)
        options = msgspec.json.encode(self._options)
        while waiting or running:
            while await self.may_begin() and waiting and len(running) < jobs:
                task = waiting.popleft()
                running[remote.remote(self.store.url, msgspec.json.encode(task), options)] = task
            if self.counts.stopped is not None:
                await self._take_back(running)
            if not running:
                return
            self.counts.running = len(running)
            ready, _ = await asyncio.to_thread(
                ray.wait, list(running), num_returns=1, timeout=_WAIT_SECONDS
            )
            busy: list[BatchTask] = []
            for reference in ready:
                task = running.pop(reference)
                self.take(task, await self._end_of(reference, task), busy)
            if busy and not waiting:
                await asyncio.sleep(_WAIT_SECONDS)  # other runners have them
            waiting.extend(busy)

    async def _take_back(self, running: Mapping[Any, BatchTask]) -> None:
        """Cancel what waits for a worker, once: no task may begin; those that have end as usual."""
        if self._has_taken_back:
            return
        self._has_taken_back = True
        has_begun = await asyncio.gather(
            *(asyncio.to_thread(self._has_begun, task) for task in running.values())
        )
        queued = [ref for ref, begun in zip(running, has_begun, strict=True) if not begun]
        await asyncio.to_thread(_cancel, queued, wait=0)

    def _has_begun(self, task: BatchTask) -> bool:
        """Whether a runner is at a task; one that cannot be looked up is left alone."""
        try:
            lease = Leases(self.store, task_folder(task.key), self._runner).latest()
        except OSError:
            return True
        return lease is not None and lease.is_live(self._options.lease_seconds)

    async def _end_of(self, reference: Any, task: BatchTask) -> TaskEnd:
        """What became of a Ray task; one whose worker was lost is begun again, for a while.

        An error of the task itself, or resources that no node has, would come again: a failure.
        """
        try:
            data = await asyncio.to_thread(ray.get, reference)
        except ray.exceptions.RayTaskError as error:
            return TaskEnd("failed", problem=f"{type(error.cause).__name__}: {error.cause}")
        except ray.exceptions.TaskUnschedulableError as error:
            return TaskEnd("failed", problem=f"Ray cannot place it: {error}")
        except ray.exceptions.TaskCancelledError:
            return TaskEnd("busy")
        except (ray.exceptions.RayError, OSError) as error:
            self._losses[task.key] += 1
            if (count := self._losses[task.key]) > self._options.most_lost:
                return TaskEnd("failed", problem=f"its worker was lost {count} times: {error}")
            return TaskEnd("busy")
        return msgspec.json.decode(data, type=TaskEnd)


def _cancel(references: list[Any], *, wait: float = 15) -> None:
    """Interrupt tasks, so that they give their leases back; wait for that."""
    for reference in references:
        with suppress(ray.exceptions.RayError):
            ray.cancel(reference)
    if references and wait:
        ray.wait(references, num_returns=len(references), timeout=wait)
