"""Entry point of the `toolrest` command. `--version` loads nothing else."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def main() -> None:
    """Run the command line."""
    _fill_standard_files()
    if sys.argv[1:] == ["--version"]:
        from toolrest import __version__

        sys.stdout.write(f"toolrest {__version__}\n")
        return
    _import_nothing_from_here()
    from toolrest.cli import first_paint, interrupts

    interrupts.leave_when_interrupted()
    _end_with_parent()
    first_paint.paint(sys.argv[1:])
    try:
        _hide_memory()
        from toolrest.cli.app import run

        run()
    finally:
        first_paint.take_back()


def apply_patch() -> None:
    """Run the `apply_patch` command."""
    _import_nothing_from_here()
    from toolrest.patch.command import script

    script()


def _import_nothing_from_here() -> None:
    """Import nothing from the current folder or those on the command line: possible workspaces.

    Other roots are known once the settings are.
    """
    from toolrest.own_code import import_only_own

    words = (form for word in sys.argv[1:] for form in (word, word[2:], word.partition("=")[2]))
    try:
        import_only_own(filter(os.path.isdir, (os.getcwd(), *filter(None, words))))
    except FileNotFoundError:  # the current folder is gone: the command will say so
        import_only_own(())


def _end_with_parent() -> None:
    """Die with the process that started us, if it wants that: a task of a batch has no other use.

    By SIGKILL (9), which a process that hangs cannot ignore; our helper then ends our commands.
    """
    parent = os.environ.pop("TOOLREST_PARENT", "")
    if not parent or sys.platform != "linux":
        return
    _kernel().die_with_parent(9)
    if str(os.getppid()) != parent:  # it died before that
        os._exit(137)


def _hide_memory() -> None:
    """Keep other processes of the user from reading keys in our memory or environment.

    Only the command line does this: the library leaves its host's process as it is.
    """
    if sys.platform != "linux":
        return
    try:  # noqa: SIM105 - contextlib would be imported before sys.path is clean
        _kernel().hide_memory()
    except OSError:
        pass


def _kernel() -> ModuleType:
    # After sys.path is clean.
    from toolrest.process.helper import kernel

    return kernel


def _fill_standard_files() -> None:
    """Open closed standard files on /dev/null, so that no journal or socket gets their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
