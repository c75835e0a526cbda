"""Where the `toolrest` command starts. Asking for the version loads nothing else."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    _fill_standard_files()
    if sys.argv[1:] == ["--version"]:
        from toolrest import __version__

        sys.stdout.write(f"toolrest {__version__}\n")
        return
    _leave_when_interrupted()
    from toolrest.cli.app import run

    run()


def interruptible() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, as Python programs expect."""
    import signal

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave_when_interrupted() -> None:
    """While code is only being loaded, Ctrl-C ends the process then and there.

    The import system runs some of its code where an exception is dropped: now and then a
    KeyboardInterrupt would be lost, and the command would go on.
    """
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: object) -> None:
    os._exit(130)


def _fill_standard_files() -> None:
    """Whoever starts us with one of them closed must not find a journal or a socket there."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
