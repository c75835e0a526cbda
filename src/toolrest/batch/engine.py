"""The local engine: tasks of a batch, several at a time, each in processes of its own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct

from toolrest.batch.run_task import CANCELLED, RunOptions, TaskEnd, run_task
from toolrest.batch.stopping import Stopping
from toolrest.batch.stores.alone import Alone
from toolrest.batch.stores.lease import Runner
from toolrest.batch.stores.store import Store
from toolrest.batch.stores.totals import Totals
from toolrest.batch.tasks.task import BatchTask
from toolrest.errors import ConfigError
from toolrest.items import JSONObject

_log = logging.getLogger("toolrest")
_MOST_UNSTORED = 3
"""So many tasks in a row without a result: the store is full or gone."""
_POLL_SECONDS = 2.0
_HASHES = ("prompt", "task")


class BatchCounts(Struct):
    """How far a run has come."""

    total: int = 0
    had_result: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    stopped: str | None = None
    """Why no more tasks are begun."""

    @property
    def open(self) -> int:
        """Tasks without a result."""
        return self.total - self.had_result - self.done


class ChangedTasks(NamedTuple):
    """The ids of tasks that are not what their result is of; the result stays on record."""

    prompt: list[str]
    options: list[str]
    """The prompt is the same: a field of the task is another one, or a `-c` of the run."""


def record_tasks(
    store: Store, tasks: Sequence[BatchTask], overrides: Sequence[str] = ()
) -> ChangedTasks:
    """Add the tasks to the store's list, from which reports know what there is to do.

    Returns those that have a result and were changed since.
    """
    known = {row["key"]: row for row in _task_rows(store)}
    new = {task.key: _row(task, overrides) for task in tasks}
    both = new.keys() & known.keys()
    changed = {key for key in both if any(_differ(new[key], known[key], name) for name in _HASHES)}
    changed &= finished_keys(store) if changed else set()
    wanted = known | {key: row for key, row in new.items() if key not in changed}
    if wanted != known:
        lines = map(json.dumps, wanted.values())
        store.write("tasks.jsonl", ("\n".join(lines) + "\n").encode())
    prompt = {key for key in changed if _differ(new[key], known[key], "prompt")}
    ids = {key: row["id"] for key, row in new.items() if key in changed}
    return ChangedTasks(
        [name for key, name in ids.items() if key in prompt],
        [name for key, name in ids.items() if key not in prompt],
    )


def _row(task: BatchTask, overrides: Sequence[str]) -> JSONObject:
    hashes = {"prompt": task.prompt_hash, "task": task.hash_with(overrides)}
    return {"id": task.id, "key": task.key, **hashes}


def _differ(new: JSONObject, known: JSONObject, name: str) -> bool:
    """Whether a hash is another one; a row of an earlier version may lack it."""
    return name in known and new[name] != known[name]


def _task_rows(store: Store) -> list[JSONObject]:
    return msgspec.json.Decoder().decode_lines(store.read("tasks.jsonl") or b"")


def stored_tasks(store: Store) -> list[tuple[str, str]]:
    """Keys and ids of the tasks in a store's list."""
    return [(row["key"], row["id"]) for row in _task_rows(store)]


def finished_keys(store: Store) -> set[str]:
    """The keys of tasks that have a result."""
    return store.folders("tasks", "result.json")


def failed_keys(store: Store) -> dict[str, str]:
    """The keys of tasks whose result is a failure, with its class."""
    return {name.rpartition(".")[0]: name.rpartition(".")[2] for name in store.files("failed")}


class Bookkeeping:
    """What every engine keeps: counts, this runner's file, reasons to stop."""

    def __init__(self, store: Store, totals: Totals, say: Callable[[str], None]) -> None:
        self.store = store
        self.totals = totals
        self.counts = BatchCounts()
        self.stopping = Stopping()
        self.alone: Alone | None = None
        """The hold on a store that serves one runner only."""
        self._say = say
        self._unstored = 0

    async def may_begin(self) -> bool:
        """Whether one more task may begin."""
        if self.counts.stopped is None:
            self.counts.stopped = await asyncio.to_thread(self.totals.used_up)
        return self.counts.stopped is None

    def take(self, task: BatchTask, end: TaskEnd, busy: list[BatchTask]) -> None:
        """Count what became of a task; `busy` gets one that another runner has."""
        counts = self.counts
        if end.outcome in ("busy", "lost"):
            busy.append(task)
        elif end.outcome == "had_result":
            counts.had_result += 1
        elif end.outcome == "cancelled":
            counts.stopped = "the batch was cancelled"
        elif end.outcome == "failed":
            counts.failed += 1
            self._say(f"{task.id}: internal: {end.problem}")
        elif end.outcome == "unstored":
            self._unstored += 1
            self.totals.note(end.result or {})
            self._say(f"{task.id}: cannot write to the store: {end.problem}")
            if self._unstored >= _MOST_UNSTORED:
                counts.stopped = f"cannot write to the store: {end.problem}"
        elif end.result is not None:
            self._unstored = 0
            self._take_result(task, end.result)

    def _take_result(self, task: BatchTask, result: JSONObject) -> None:
        self.counts.done += 1
        failure = result["failure"]
        self.counts.failed += failure is not None
        self.totals.take(result)
        if failure is not None:
            message = str(result.get("error") or "").strip().partition("\n")[0]
            self._say(f"{task.id}: {failure}" + (f": {message}" if message else ""))

    async def watch(self) -> None:
        """Write this runner's file; stop when the batch is cancelled."""
        while True:
            self.totals.own.running = self.counts.running
            await self._write_totals()
            with suppress(OSError):
                if await asyncio.to_thread(self.store.has, CANCELLED):
                    self.counts.stopped = "the batch was cancelled"
                if self.alone is not None and not await asyncio.to_thread(self.alone.beat):
                    self.counts.stopped = "another runner has the store, which serves one at a time"
            await asyncio.sleep(_POLL_SECONDS)

    async def end(self) -> None:
        """Write that this runner has ended."""
        self.totals.own.ended = True
        await self._write_totals()
        if self.alone is not None:
            with suppress(OSError):
                await asyncio.to_thread(self.alone.end)

    async def _write_totals(self) -> None:
        with suppress(OSError):
            await asyncio.to_thread(self.totals.write)


class LocalEngine(Bookkeeping):
    """Runs tasks in this process's children."""

    def __init__(
        self,
        store: Store,
        options: RunOptions,
        totals: Totals,
        runner: Runner,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(store, totals, say)
        self._options = options
        self._runner = runner

    async def run(self, tasks: Sequence[BatchTask], jobs: int) -> None:
        """All that have no result yet, at most `jobs` at a time."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(min(64, jobs + 8)))
        with self.stopping.cancels_this_task():
            watching = asyncio.create_task(self.watch())
            try:
                await self._all(tasks, jobs)
            finally:
                watching.cancel()
                await self.end()

    async def _all(self, tasks: Sequence[BatchTask], jobs: int) -> None:
        finished = await asyncio.to_thread(finished_keys, self.store)
        waiting = deque(task for task in tasks if task.key not in finished)
        self.counts.total, self.counts.had_result = len(tasks), len(tasks) - len(waiting)
        busy: list[BatchTask] = []
        while waiting and self.counts.stopped is None:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(jobs, len(waiting))):
                    group.create_task(self._worker(waiting, busy))
            if busy and self.counts.stopped is None:
                # Other runners have them: wait for their results, or for their leases to end.
                await asyncio.sleep(min(_POLL_SECONDS, self._options.lease_seconds / 4))
            waiting.extend(busy)
            busy.clear()

    async def _worker(self, waiting: deque[BatchTask], busy: list[BatchTask]) -> None:
        while waiting and await self.may_begin():
            # Other workers have gone on meanwhile.
            if not waiting:
                return
            task = waiting.popleft()
            self.counts.running += 1
            try:
                end = await run_task(task, self.store, self._options, self._runner)
            except Exception as error:  # one task must not take the others with it
                _log.exception("a task ended by an error in Toolrest itself")
                end = TaskEnd("failed", problem=f"{type(error).__name__}: {error}")
            finally:
                self.counts.running -= 1
            self.take(task, end, busy)


def check_not_cancelled(store: Store) -> None:
    """ConfigError for a store whose batch was cancelled."""
    if store.has(CANCELLED):
        raise ConfigError(
            f"the batch in {store.url} was cancelled; toolrest batch cancel --undo {store.url} "
            "lets it go on"
        )


def shard_of(tasks: Sequence[BatchTask], shard: tuple[int, int] | None) -> list[BatchTask]:
    """The tasks of one shard; every task is in exactly one."""
    if shard is None:
        return list(tasks)
    number, of = shard
    return [task for at, task in enumerate(tasks) if at % of == number]
