"""Time limits that end when the test says so, and work measured on a machine of any speed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


class Clock:
    """The clock of an event loop, which can be put forward.

    Give the limit that is tested a length that no machine needs, and let it pass as soon as what
    must come before it is there. Limits of the test itself (`asyncio.timeout`) pass with it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self._ahead = 0.0

    def time(self) -> float:
        """What the loop takes for the time."""
        return self._real() + self._ahead

    def skip(self, seconds: float) -> None:
        """Let this much time pass at once."""
        self._ahead += seconds

    def once(self, text: str | bytes, seconds: float) -> Callable[..., None]:
        """For `on_bytes` and `on_delta`: time passes once a command has said this."""
        expected, heard = _bytes(text), bytearray()

        def hear(*told: Any) -> None:
            known = expected in heard
            heard.extend(_bytes(told[-1]))
            if expected in heard and not known:
                self.skip(seconds)

        return hear


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def assert_effort(work: Callable[[], object], below: float) -> None:
    """Fail when the work takes this many million empty loops of processor time, in each of three.

    Counted in loops it is the same on a slow machine, and only what is slow each time is slow: a
    shared machine may stand still for a moment, which counts as processor time.
    """
    tries: list[float] = []
    while len(tries) < 3:
        tries.append(_spent(work) / _spent(_million))
        if tries[-1] < below:
            return
    raise AssertionError(f"{tries} million loops, {below} are the limit")


def calls(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls, in this thread: the same on every machine."""
    counted = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


def _spent(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _million() -> None:
    for _ in range(1_000_000):
        pass
