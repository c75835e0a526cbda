"""A wake-up for tasks that wait for a change, with an optional time limit."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Wakes every waiting task; each then checks its own condition again."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake every waiting task: something has changed."""
        for future in self._waiting:
            wake(future)

    async def wait(self, seconds: float | None = None) -> None:
        """Return at the next notify, or after this time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.add(future)
        timer = None if seconds is None else loop.call_later(max(seconds, 0.0), wake, future)
        try:
            await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()


def wake(future: asyncio.Future[None]) -> None:
    """Let the task go on that waits for this future; twice is as good as once."""
    if not future.done():
        future.set_result(None)


async def uncancelled(work: asyncio.Future[None] | asyncio.Task[None]) -> None:
    """Wait for work to finish even while being cancelled; the cancellation then goes on."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            if work.cancelled():
                raise
            cancelled = error
    problem = work.exception()
    if cancelled is not None:
        raise cancelled
    if problem is not None:
        raise problem
