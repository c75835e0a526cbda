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
    from toolrest.cli.interrupts import leave_when_interrupted

    leave_when_interrupted()
    from toolrest.cli.app import run

    run()


def _fill_standard_files() -> None:
    """Whoever starts us with one of them closed must not find a journal or a socket there."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
