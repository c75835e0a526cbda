"""Signals as bytes on a pipe, so that one poll waits for everything."""

from __future__ import annotations

import os

# The Python layer over this module costs more to import than the rest of the helper.
_signal = __import__("_signal")

_ENDING = (1, 2, 3, 15)


def reset() -> None:
    """Reset the signals that Python ignores; children would inherit that."""
    for number in range(1, _signal.NSIG):
        if number not in (9, 19, 32, 33) and _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)


def listen() -> int:
    """A descriptor that is readable after SIGCHLD or a signal to end this process."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    for number in (_signal.SIGCHLD, *_ENDING):
        _signal.signal(number, _ignore)
    _signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def forget() -> None:
    """Detach a child's signals from its parent's pipe."""
    _signal.set_wakeup_fd(-1)
    for number in (_signal.SIGCHLD, *_ENDING):
        _signal.signal(number, _signal.SIG_DFL)


def drain(reading: int) -> bool:
    """Discard pending signals; True when one of them asks this process to end."""
    try:
        numbers = os.read(reading, 512)
    except BlockingIOError:
        return False
    return any(number in _ENDING for number in numbers)


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing: the wake-up descriptor already has the signal."""
