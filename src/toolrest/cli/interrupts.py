"""Ctrl-C while the command line starts."""

from __future__ import annotations

import os
import signal

from toolrest.cli.first_paint import take_back


def interruptible() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, as Python programs expect."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave_when_interrupted() -> None:
    """While code is only being loaded, Ctrl-C ends the process then and there.

    The import system runs some of its code where an exception is dropped: now and then a
    KeyboardInterrupt would be lost, and the command would go on.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: object) -> None:
    take_back()
    os._exit(130)
