"""Daemon threads for blocking code off the event loop, which nothing waits for at exit.

`concurrent.futures` joins its threads when Python exits, so one stuck tool would hang the
whole program; here a thread that does not stop within the grace is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 2.0
_IDLE_LIMIT = 16


class Abandoned(Exception):
    """A cancelled thread did not stop within the grace and was left behind."""


class _Worker:
    """One daemon thread; takes one job at a time and returns itself to the pool after it."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._loop, name="toolrest-worker", daemon=True).start()

    def _loop(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()
            del job
            if len(_idle) >= _IDLE_LIMIT:
                return
            _idle.append(self)


# Idle threads hold no session's state, so sharing them between sessions leaks nothing.
_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)  # a fork copies the list, not the threads


def _take_worker() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


def start_in_thread(function: Callable[[], None]) -> None:
    """Run `function` in a daemon thread and do not wait for it; it must not raise."""
    _take_worker().jobs.put(function)


async def run_in_thread(
    function: Callable[..., T], args: tuple[Any, ...], cancel: threading.Event
) -> T:
    """Run `function(*args)` in a daemon thread.

    On cancellation `cancel` is set and the thread gets the grace to return; only then is
    CancelledError raised again, or `Abandoned` when the thread is still running.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            done.set_exception(error)
        else:
            # sys.exit() in a tool ends the tool, not the program that called it.
            message = f"{type(error).__name__} {error}".strip()
            done.set_exception(RuntimeError(f"{message} left the function"))

    def job() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function, *args)
        except BaseException as exc:
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(deliver, result, error)

    _take_worker().jobs.put(job)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel.set()
        if not await _settled(done, GRACE_SECONDS):
            done.cancel()
            raise Abandoned from None
        done.exception()  # looked at, so that asyncio does not report it as lost
        raise


async def _settled(future: asyncio.Future[T], seconds: float) -> bool:
    """Wait for a future with a time limit, even when the waiting task is cancelled."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not future.done() and (left := end - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({future}, timeout=left)
    return future.done()
