"""The `apply_patch` command: one argument or stdin, no options, exit codes 0, 1 and 2."""

from __future__ import annotations

import os
import sys

from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.run import run
from toolrest.patch.text.encoding import os_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

FLAG = "--codex-run-as-apply-patch"
NAMES = ("apply_patch", "applypatch")

_USAGE = "Usage: apply_patch 'PATCH'\n       echo 'PATCH' | apply_patch\n"
_ONE = "Error: apply_patch accepts exactly one argument.\n"
_ARGUMENT = "Error: apply_patch requires a UTF-8 PATCH argument.\n"
_STDIN = "Error: Failed to read PATCH from stdin.\nstream did not contain valid UTF-8\n"
_FLAGGED = f"Error: {FLAG} requires a UTF-8 PATCH argument.\n"


class _Stop(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def main(argv: Sequence[str], stdin: BinaryIO, stdout: BinaryIO, stderr: BinaryIO) -> int:
    """Run the command; `argv` starts with the name it was called by. Returns the exit code."""
    try:
        patch = _patch(argv, stdin)
        cwd = _cwd()
    except _Stop as stop:
        _say(stderr, stop.message)
        return stop.code
    with OsFiles() as files:
        outcome = run(patch, files, cwd)
    _say(stdout, outcome.stdout)
    _say(stderr, outcome.stderr)
    return outcome.exit_code


def _patch(argv: Sequence[str], stdin: BinaryIO) -> str:
    arguments = argv[1:]
    called = argv[0].rpartition("/")[2] if argv else ""
    if called not in NAMES and arguments and arguments[0] == FLAG:
        return _utf8(arguments[1] if len(arguments) > 1 else None, _FLAGGED)
    if len(arguments) > 1:
        raise _Stop(2, _ONE)
    if arguments:
        return _utf8(arguments[0], _ARGUMENT)
    data = stdin.read()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _Stop(1, _STDIN) from None
    if not text:
        raise _Stop(2, _USAGE)
    return text


def _cwd() -> str:
    try:
        return os.getcwdb().decode("utf-8", "surrogateescape")
    except OSError as error:
        message = f"Error: Failed to determine current directory.\n{os_reason(error)}\n"
        raise _Stop(1, message) from None


def _utf8(argument: str | None, message: str) -> str:
    # The interpreter decoded it by the locale, but a patch is always UTF-8.
    try:
        if argument is not None:
            return os.fsencode(argument).decode()
    except UnicodeError:
        pass
    raise _Stop(1, message)


def _say(stream: BinaryIO, text: str) -> None:
    if text:
        # A working directory may have a name that is not UTF-8: print its bytes as they are.
        stream.write(text.encode("utf-8", "surrogateescape"))
        stream.flush()


def script() -> None:
    """Entry point of the script `apply_patch`."""
    try:
        code = main(sys.argv, sys.stdin.buffer, sys.stdout.buffer, sys.stderr.buffer)
    except BrokenPipeError:
        # The reader of our output is gone; the patch itself was applied or refused by then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
