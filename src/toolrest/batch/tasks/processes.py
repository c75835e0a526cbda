"""Signals for children that asyncio waits for."""

from __future__ import annotations

import os
from asyncio.subprocess import Process
from contextlib import suppress


def send_signal(process: Process, number: int) -> None:
    """Send a signal to a child, if it is there.

    Python's own way looks first whether it has ended, and so takes its exit status from the thread
    that waits for it: that prints "Unknown child process", as after Ctrl-C, which ends all at once.
    """
    with suppress(ChildProcessError, ProcessLookupError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(process.pid, number)
