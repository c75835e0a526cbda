"""A call's time limit: one timer that cancels the work, and gives up on work that will not stop.

`asyncio.timeout` does the first half at twice the cost and not the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolrest.gate.threads import GRACE_SECONDS


class Deadline:
    """Cancels the current task after `seconds`, then calls `give_up(seconds)` after the grace."""

    __slots__ = ("_expired", "_give_up", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float, give_up: Callable[[float], None]) -> None:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        self._seconds = seconds
        self._give_up = give_up
        self._expired = False
        self._timer = loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(GRACE_SECONDS + 0.5, self._give_up, self._seconds)

    def take(self) -> bool:
        """Whether this deadline cancelled the task, and nobody else did; takes that back."""
        return self._expired and self._task is not None and self._task.uncancel() == 0

    def stop(self) -> None:
        """The work is over: no timer is left."""
        self._timer.cancel()
