"""Deadlines of a session's calls: one timer for all of them.

A timer per call would be most of what a quick call costs. When a call's time is up its work is
cancelled; work that does not stop within the grace is given up on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolrest.gate.threads import GRACE_SECONDS


class Deadline:
    """One call's time limit. Stopping it costs nothing."""

    __slots__ = ("_deadlines", "_expired", "_give_up", "_task", "due", "seconds")

    def __init__(
        self,
        deadlines: Deadlines,
        task: asyncio.Task[None] | None,
        seconds: float,
        due: float,
        give_up: Callable[[float], None],
    ) -> None:
        self._deadlines = deadlines
        self._task = task
        self.seconds = seconds
        self._give_up = give_up
        self._expired = False
        self.due = due

    def expire(self, now: float) -> None:
        """Cancel the work when its time is up, or give up on work that was cancelled before."""
        if self._expired:
            self.stop()
            self._give_up(self.seconds)
            return
        self._expired = True
        self.due = now + GRACE_SECONDS + 0.5
        if self._task is not None:
            self._task.cancel()

    def take(self) -> bool:
        """Whether only this deadline cancelled the task; if so, the cancellation is taken back."""
        return self._expired and self._task is not None and self._task.uncancel() == 0

    def stop(self) -> None:
        """Remove the deadline: the work is over, or is being cancelled otherwise."""
        self._deadlines.forget(self)


class Deadlines:
    """Every running call's deadline, and one timer for the earliest."""

    def __init__(self) -> None:
        self._open: set[Deadline] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(
        self, task: asyncio.Task[None] | None, seconds: float, give_up: Callable[[float], None]
    ) -> Deadline:
        """Cancel this task after `seconds`, then call `give_up(seconds)` after the grace."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer = loop, None
        deadline = Deadline(self, task, seconds, loop.time() + seconds, give_up)
        self._open.add(deadline)
        if self._timer is None or deadline.due < self._timer.when():
            self._arm(deadline.due)
        return deadline

    def forget(self, deadline: Deadline) -> None:
        """Remove a deadline; the timer finds that out when it fires."""
        self._open.discard(deadline)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._loop is None:
            return
        now = self._loop.time()
        for deadline in list(self._open):
            if deadline.due <= now:
                deadline.expire(now)
        if self._open:
            self._arm(min(deadline.due for deadline in self._open))
