"""Ctrl-C and SIGTERM while a batch runs: once is enough."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 3


class Stopping:
    """The end of a run by a signal: the first one cancels it, and it ends in good order.

    Another one changes nothing until the process ends, so that no part of the ending is lost. The
    third one ends the process then and there: what is stored is whole at any time.
    """

    def __init__(self) -> None:
        self.signal = 0
        """The signal that stopped the run; 0 while none did."""
        self._count = 0

    @contextmanager
    def cancels_this_task(self) -> Iterator[None]:
        """Cancel the current task at a signal; that it was cancelled is then no error."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()

        def stop(number: int, _: object) -> None:
            self._count += 1
            if self._count == _PATIENCE:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            if not self.signal and this is not None:
                self.signal = number
                loop.call_soon_threadsafe(this.cancel)

        # Not the loop's own handlers: with it they end, and Ctrl-C would raise once more.
        before = {number: signal.signal(number, stop) for number in _NUMBERS}
        try:
            with _noticed_at_once(loop):
                yield
        except asyncio.CancelledError:
            if not self.signal:
                raise
        finally:
            if not self.signal:
                for number, handler in before.items():
                    signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def _noticed_at_once(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Wake the loop at a signal: one between Python's last look and the wait would not end it."""
    awakes, wakes = socket.socketpair()
    with awakes, wakes:
        awakes.setblocking(False)
        wakes.setblocking(False)
        loop.add_reader(awakes, awakes.recv, 4096)
        before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(awakes)
