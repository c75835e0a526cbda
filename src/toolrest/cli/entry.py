"""Where the `toolrest` command starts. Asking for the version loads nothing else."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        from toolrest import __version__

        sys.stdout.write(f"toolrest {__version__}\n")
        return
    try:
        from toolrest.cli.app import run

        run()
    except KeyboardInterrupt:  # while the code is still being loaded
        sys.exit(130)
