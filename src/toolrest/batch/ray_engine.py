"""The Ray engine: each task is a Ray task that calls `run_task`, somewhere in a cluster.

Ray places them, and starts one again whose worker or node was lost; the lease and the journal in
the store make that harmless. The extra `ray` brings it; workers need Toolrest and their settings.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import ray
from msgspec import Struct

from toolrest.batch.engine import Bookkeeping, finished_keys
from toolrest.batch.run_task import RunOptions, TaskEnd, run_task
from toolrest.batch.stores.store import Store, open_store
from toolrest.batch.stores.totals import Totals
from toolrest.batch.tasks.task import BatchTask

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
    end = asyncio.run(
        run_task(
            msgspec.json.decode(task, type=BatchTask),
            open_store(url),
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

    async def run(self, tasks: Sequence[BatchTask], jobs: int) -> None:
        """All that have no result yet."""
        loop, me = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            self.terminated = True
            if me is not None:
                me.cancel()

        await asyncio.to_thread(
            ray.init, address=self._where.address or "auto", log_to_driver=False, logging_level=30
        )
        loop.add_signal_handler(signal.SIGTERM, stop)
        watching = asyncio.create_task(self.watch())
        running: dict[Any, BatchTask] = {}
        try:
            await self._all(tasks, jobs, running)
        except asyncio.CancelledError:
            await asyncio.to_thread(_cancel, list(running))
            if not self.terminated:
                raise
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
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
            while waiting and len(running) < jobs and await self.may_begin():
                task = waiting.popleft()
                running[remote.remote(self.store.url, msgspec.json.encode(task), options)] = task
            if not running:
                return
            self.counts.running = len(running)
            ready, _ = await asyncio.to_thread(
                ray.wait, list(running), num_returns=1, timeout=_WAIT_SECONDS
            )
            busy: list[BatchTask] = []
            for reference in ready:
                self.take(running.pop(reference), await _end_of(reference), busy)
            if busy and not waiting:
                await asyncio.sleep(_WAIT_SECONDS)  # other runners have them
            waiting.extend(busy)


async def _end_of(reference: Any) -> TaskEnd:
    """What became of a Ray task; one whose workers were lost too often is begun again.

    An error of the task itself would come again: it is a failure.
    """
    try:
        data = await asyncio.to_thread(ray.get, reference)
    except ray.exceptions.RayTaskError as error:
        return TaskEnd("failed", problem=f"{type(error.cause).__name__}: {error.cause}")
    except (ray.exceptions.RayError, OSError):
        return TaskEnd("busy")
    return msgspec.json.decode(data, type=TaskEnd)


def _cancel(references: list[Any]) -> None:
    """Interrupt tasks, so that they give their leases back."""
    for reference in references:
        with suppress(ray.exceptions.RayError):
            ray.cancel(reference)
    if references:
        ray.wait(references, num_returns=len(references), timeout=15)
