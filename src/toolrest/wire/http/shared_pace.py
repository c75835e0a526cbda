"""The pace of requests that all processes of a batch on one machine share, a file per provider.

A server that answers 429 makes all of them wait, not only the one that asked: the file has the
time of the next free slot and the interval between slots. A refusal doubles the interval, a reply
shortens it until it is gone. Only where `TOOLREST_PACE_DIR` names the folder (`toolrest batch`).
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Callable

VARIABLE = "TOOLREST_PACE_DIR"
_FIRST, _LONGEST, _NONE = 0.05, 10.0, 0.01
_FASTER = 0.8
_LONGEST_WAIT = 300.0
"""However far ahead a server or a file puts the next slot."""


class SharedPace:
    """The slots of one provider. A file that cannot be used slows nothing down."""

    def __init__(self, folder: str, provider: str) -> None:
        name = hashlib.sha256(provider.encode()).hexdigest()[:24]
        self._path = os.path.join(folder, f"{name}.json")

    async def slot(self) -> None:
        """Wait for the next free slot."""
        at = time.time()

        def take(free: float, interval: float) -> tuple[float, float]:
            nonlocal at
            at = max(at, free)
            return (at + interval, interval) if interval else (free, interval)

        self._change(take)
        delay = at - time.time()
        if delay > 0:
            await asyncio.sleep(delay)

    def refused(self, wait: float | None) -> None:
        """Take a 429: no slot before `wait` seconds are over, and twice the interval from then."""

        def slower(free: float, interval: float) -> tuple[float, float]:
            interval = min(max(interval * 2, _FIRST), _LONGEST)
            seconds = interval if wait is None or not math.isfinite(wait) else wait
            return max(free, time.time() + min(seconds, _LONGEST_WAIT)), interval

        self._change(slower)

    def accepted(self) -> None:
        """Take a reply: a shorter interval, if there is one."""

        def faster(free: float, interval: float) -> tuple[float, float]:
            interval *= _FASTER
            return free, interval if interval > _NONE else 0.0

        if os.path.exists(self._path):
            self._change(faster, only_paced=True)

    def _change(
        self, change: Callable[[float, float], tuple[float, float]], only_paced: bool = False
    ) -> None:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            change(0.0, 0.0)
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            before = _read(fd)
            if only_paced and not before[1]:
                return
            after = change(*before)
            if after != before:
                os.ftruncate(fd, 0)
                os.pwrite(fd, json.dumps(after).encode(), 0)
        except OSError:
            return
        finally:
            os.close(fd)


def _read(fd: int) -> tuple[float, float]:
    try:
        free, interval = json.loads(os.pread(fd, 200, 0))
        found = float(free), float(interval)
    except (ValueError, TypeError, OverflowError):
        return 0.0, 0.0
    is_sound = all(map(math.isfinite, found)) and 0 <= found[1] <= _LONGEST
    return found if is_sound and found[0] <= time.time() + _LONGEST_WAIT else (0.0, 0.0)
