"""`run_task`: one task from lease to result, idempotent, the same for every engine."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct, field

from toolrest.batch.attempt import Attempt
from toolrest.batch.failures import POLICIES, Retry, failure_of_error
from toolrest.batch.prices import Prices
from toolrest.batch.stores.lease import SECONDS, Lease, Leases, Runner
from toolrest.batch.stores.store import Store
from toolrest.batch.stores.threads import in_thread
from toolrest.batch.tasks.journal import StillOpen
from toolrest.batch.tasks.setup import TaskSetup, seconds_of, this_run
from toolrest.batch.tasks.task import BatchTask
from toolrest.batch.tasks.workspace import WorkspaceError, WorkspaceUnavailable
from toolrest.errors import ConfigError
from toolrest.items import JSONObject

Outcome: TypeAlias = Literal[
    "done", "had_result", "busy", "cancelled", "lost", "unstored", "failed"
]
"""What became of a task: `busy`: another runner has it; `lost`: another one took it over;
`unstored`: the store failed, so that it has no result yet; `failed`: an error in Toolrest did."""

_log = logging.getLogger("toolrest")
_STORE_RETRIES = (0.5, 2.0, 8.0)
_PATIENCE, _LONGEST_BEAT = 0.7, 0.9
"""The parts of a lease after which its holder gives up: when heartbeats fail, when one hangs."""
CANCELLED = "cancelled"
"""The file in a store that makes all runners stop."""
_LOST_RUNNERS = 8
"""So many runners in a row may die at a task, which need not be its fault, before that counts."""


class RunOptions(Struct):
    """What all tasks of a run have in common."""

    overrides: tuple[str, ...] = ()
    scratch: str = ""
    prices: Prices = Prices()
    lease_seconds: float = SECONDS
    keep: bool = False
    """Whether workspaces that were made for tasks stay."""
    retries: Mapping[str, int] = field(default_factory=dict)
    """How often failures of a class are tried again, where it is not as usual."""

    def policy(self, failure: str) -> Retry:
        """The retry policy of a class."""
        usual = POLICIES[failure]
        return Retry(self.retries.get(failure, usual.times), usual.delay, usual.longest)

    @property
    def most_lost(self) -> int:
        """How many runners in a row may die at a task."""
        return _LOST_RUNNERS + self.policy("killed").times


class TaskEnd(Struct):
    """What became of a task in this run."""

    outcome: Outcome
    result: JSONObject | None = None
    problem: str = ""


def task_folder(key: str) -> str:
    """The folder of a task in a store."""
    return f"tasks/{key}"


def failed_marker(key: str, failure: str) -> str:
    """An empty file for a task whose result is a failure: one listing has them all."""
    return f"failed/{key}.{failure}"


async def run_task(
    task: BatchTask, store: Store, options: RunOptions, runner: Runner | None = None
) -> TaskEnd:
    """Run a task to its result in the store, unless it has one or another runner is at it.

    A task that a dead runner left is resumed from its journal. Cancelling stops it so that it
    can be resumed. The store works in threads: a slow one holds up no heartbeat.
    """
    folder = task_folder(task.key)
    leases = Leases(store, folder, runner or Runner.here(), options.lease_seconds)
    try:
        if await asyncio.to_thread(store.has, f"{folder}/result.json"):
            return TaskEnd("had_result")
        if await asyncio.to_thread(store.has, CANCELLED):
            return TaskEnd("cancelled")
        lease = await asyncio.to_thread(leases.take)
        if lease is None:
            return TaskEnd("busy")
        if await asyncio.to_thread(store.has, f"{folder}/result.json"):
            await asyncio.to_thread(leases.clear, lease)
            return TaskEnd("had_result")
    except OSError as error:
        return TaskEnd("unstored", problem=_reason(error))
    return await _Work(task, store, options, leases, lease).run()


class _Work:
    """The work on one task while its lease is held."""

    def __init__(
        self,
        task: BatchTask,
        store: Store,
        options: RunOptions,
        leases: Leases,
        lease: Lease,
    ) -> None:
        self._task = task
        self._store = store
        self._options = options
        self._leases = leases
        self._lease = lease
        self._folder = task_folder(task.key)
        self._end: TaskEnd | None = None
        self._began = time.time()
        self._is_storing = False
        """Whether the result is being stored, or is stored: then one in the store may be ours."""
        setup = TaskSetup(task, store, self._folder, options.overrides, options.scratch)
        setup.is_held = lambda: lease.is_live(leases.seconds)
        self._setup = setup

    async def run(self) -> TaskEnd:
        """Work beside the heartbeat; what the heartbeat finds ends the work."""
        work = asyncio.ensure_future(self._work())
        beating = asyncio.ensure_future(self._beat(work))
        try:
            return await work
        except asyncio.CancelledError:
            if self._end is None:
                raise
            return self._end
        finally:
            beating.cancel()
            if not work.done():
                work.cancel()
            await asyncio.wait({work, beating})
            await self._setup.settle(has_ended=True)
            stopped = work.cancelled() or work.exception() is not None
            if stopped and (self._end is None or self._end.outcome == "cancelled"):
                await self._release()

    async def _beat(self, work: asyncio.Task[TaskEnd]) -> None:
        """Renew the lease and store the journal; end the work when the task is another runner's."""
        seconds = self._leases.seconds
        while True:
            await asyncio.sleep(seconds / 4)
            # A store may hang instead of failing; who wakes after a long sleep has a moment yet.
            left = self._leases.renewed + seconds * _LONGEST_BEAT - time.monotonic()
            try:
                async with asyncio.timeout(max(left, seconds / 4)):
                    is_ours = await asyncio.to_thread(self._leases.beat, self._lease)
                    if self._is_storing:
                        continue
                    stop = not is_ours or await asyncio.to_thread(self._store.has, CANCELLED)
                if not is_ours:
                    self._end = TaskEnd("lost", problem="another runner has taken it over")
                elif stop:
                    self._end = TaskEnd("cancelled")
                if not stop:
                    self._setup.start_sync()  # not awaited: it may take longer than the lease
            except OSError as error:
                # Without a heartbeat others take the lease for a dead one's.
                is_long = time.monotonic() - self._leases.renewed >= seconds * _PATIENCE
                stop = is_long and not self._is_storing  # one result at most is stored, by anyone
                if stop:
                    self._end = TaskEnd("lost", problem=_reason(error))
            if stop:
                work.cancel()
                return

    async def _release(self) -> None:
        self._lease.released = True
        for attempt in self._lease.attempts:
            if "ended" not in attempt:
                attempt |= {"ended": time.time(), "outcome": "stopped"}
        with suppress(OSError, WorkspaceError):
            await self._setup.sync()
        with suppress(OSError):
            await asyncio.shield(asyncio.to_thread(self._leases.beat, self._lease))

    async def _work(self) -> TaskEnd:
        try:
            return await self._attempts()
        except StillOpen:
            # A runner that was stopped for long left its session running: it is not begun twice.
            await self._release()
            return TaskEnd("busy")

    async def _attempts(self) -> TaskEnd:
        lost = self._lease.lost
        failures = {"killed": max(0, lost - _LOST_RUNNERS)}
        if lost > self._options.most_lost:
            return await self._finish(await self._attempt(gives_up=True))
        while True:
            attempt = await self._attempt()
            failure = attempt.failure
            if failure is None:
                break
            policy = self._options.policy(failure)
            before = failures.get(failure, 0)
            if before >= policy.times:
                break
            failures[failure] = before + 1
            await asyncio.sleep(policy.wait(before))
        return await self._finish(attempt)

    async def _attempt(self, *, gives_up: bool = False) -> Attempt:
        row: JSONObject = {
            "number": len(self._lease.attempts) + 1,
            "runner": self._lease.runner.id,
            "host": self._lease.runner.host,
            "started": time.time(),
        }
        earlier = list(self._lease.attempts)
        self._lease.attempts.append(row)
        attempt = Attempt(self._setup, earlier, row, self._options.prices)
        try:
            if gives_up:
                await self._give_up(attempt)
            else:
                await attempt.run(self._recorded)
        except StillOpen:
            self._lease.attempts.pop()
            raise
        except WorkspaceUnavailable as error:
            attempt.fail("workspace", str(error))
        except (WorkspaceError, ConfigError) as error:
            attempt.fail("usage", str(error))
        except OSError as error:
            attempt.fail(failure_of_error(error), _reason(error))
        except Exception as error:  # one task must not take the others with it
            _log.exception("an attempt at a task ended by an error in Toolrest itself")
            attempt.fail("internal", f"{type(error).__name__}: {error}")
        row |= {"ended": time.time(), "outcome": attempt.failure or "done"}
        return attempt

    async def _give_up(self, attempt: Attempt) -> None:
        """Fail a task that seems to kill its runners; the model is not asked again."""
        lost = self._lease.lost
        attempt.fail("killed", f"{lost} runners in a row died while they worked on it")
        if lost == self._options.most_lost + 1:  # else they died at this, too
            await attempt.take_earlier()

    async def _recorded(self) -> None:
        """Store the attempt with its session before the model is asked anything."""
        with suppress(OSError):
            await asyncio.to_thread(self._leases.beat, self._lease)

    async def _finish(self, attempt: Attempt) -> TaskEnd:
        ended = time.monotonic()
        await attempt.check()
        await attempt.take_patch()
        await self._setup.settle(has_ended=True)  # nothing older is stored after the result
        seconds = seconds_of(self._lease.attempts) + time.monotonic() - ended
        result = attempt.result() | {
            "seconds": round(seconds, 3),
            "started": self._first_start(),
            "finished": time.time(),
            "attempts": self._lease.attempts,
        }
        data = json.dumps(result, ensure_ascii=False, indent=1).encode("utf-8", "replace")
        problem = ""
        for delay in (*_STORE_RETRIES, None):
            try:
                if not await self._store_end(attempt, data):
                    return TaskEnd("lost", problem="another runner has taken it over")
            except OSError as error:
                problem = _reason(error)
                if delay is not None:
                    await asyncio.sleep(delay)
            else:
                with suppress(OSError):
                    await asyncio.to_thread(self._leases.clear, self._lease)
                keep = self._options.keep or not attempt.is_stored_whole
                await self._setup.remove(keep=keep)
                return TaskEnd("done", result)
        # All of it is still on this machine: the next run stores it without asking the model.
        await self._release()
        return TaskEnd("unstored", result, problem)

    async def _store_end(self, attempt: Attempt, result: bytes) -> bool:
        """Store the artifacts and the result; False when the task is another runner's by now."""
        if not await asyncio.to_thread(self._leases.beat, self._lease):
            return False
        await attempt.store_artifacts()
        await self._mark(attempt.failure)
        if not await asyncio.to_thread(self._leases.beat, self._lease):
            return False
        self._is_storing = True
        try:
            return await in_thread(self._store.create, f"{self._folder}/result.json", result)
        except OSError:
            self._is_storing = False
            raise

    async def _mark(self, failure: str | None) -> None:
        """Leave the marker of this failure alone; an attempt before may have left another."""
        if failure is not None:
            marker = failed_marker(self._task.key, failure)
            await asyncio.to_thread(self._store.write, marker, b"")
        if len(self._lease.attempts) > 1:
            for other in POLICIES.keys() - {failure}:
                marker = failed_marker(self._task.key, other)
                await asyncio.to_thread(self._store.delete, marker)

    def _first_start(self) -> float:
        started = (row.get("started") for row in this_run(self._lease.attempts))
        return next((at for at in started if isinstance(at, float)), self._began)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError) and error.errno is None:
        return "the store does not answer"
    if error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return error.strerror or str(error) or type(error).__name__
