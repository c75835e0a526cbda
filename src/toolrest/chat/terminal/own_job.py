"""The parent of a command of the person's own, in the command's terminal: a shell of one job.

Started with `-I -S`, so it imports nothing of ours. It tells the chat when the job is stopped
(`T`), how it ended and what it left unread, and continues the job when a byte comes.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import termios
from contextlib import suppress

_MOST = 4096
_OURS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def main() -> None:
    """Run `shell -c line` as the job in the foreground of the terminal that is standard input."""
    shell, line, control = sys.argv[1], sys.argv[2], int(sys.argv[3])
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in _OURS:
        signal.signal(number, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.close(control)
        _become(shell, line)
    _to_front(job)
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.write(control, b"T")
        go_on = os.read(control, 1)
        _to_front(job)
        os.killpg(job, signal.SIGCONT if go_on else signal.SIGHUP)
    left = _unread()
    os.write(control, b"E" + struct.pack("iI", os.waitstatus_to_exitcode(status), len(left)) + left)


def _unread() -> bytes:
    """What was typed ahead, and the job has not read."""
    _to_front(os.getpid())
    settings = termios.tcgetattr(0)
    settings[3] &= ~(termios.ICANON | termios.ECHO)
    settings[6][termios.VMIN] = settings[6][termios.VTIME] = 0
    termios.tcsetattr(0, termios.TCSANOW, settings)
    return os.read(0, _MOST)


def _become(shell: str, line: str) -> None:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for number in (*_OURS, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(shell, [shell, "-c", line])  # noqa: S606 - it is one
    except OSError as error:
        os.write(2, f"{shell}: {error.strerror}\n".encode())
    os._exit(127)


def _to_front(job: int) -> None:
    with suppress(OSError):  # it did so itself, or has ended
        os.setpgid(job, job)
    with suppress(OSError):
        os.tcsetpgrp(0, job)


if __name__ == "__main__":
    main()
