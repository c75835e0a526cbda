"""Runs inside the sandbox: tries things and prints what came of each.

Plain Python without imports from outside this folder. Every probe runs in a fork of its own, so
that one that is killed, or changes the process, tells nothing about the next.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

Context = dict[str, Any]
Probe = Callable[[Context], "str | None"]

PROBES: dict[str, tuple[str, Probe]] = {}
libc = ctypes.CDLL(None, use_errno=True)


class NotHere(Exception):
    """This machine does not have what the probe is about."""


def probe(kind: str) -> Callable[[Probe], Probe]:
    """Register a function under its name: deny (must fail), func (must work), info (see table).

    A probe that returns None got what it wanted; a word or an OSError says how it was stopped.
    """

    def add(function: Probe) -> Probe:
        PROBES[function.__name__] = (kind, function)
        return function

    return add


def syscall(number: int, *arguments: Any) -> int:
    """A raw system call; raises OSError."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def checked(result: int) -> int:
    """The result of a libc call; raises OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def attempt(function: Probe, context: Context) -> str:
    """What came of one probe, in a word or two."""
    try:
        stopped = function(context)
    except NotHere as reason:
        return f"N/A {reason}"
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        return f"DENIED {name}"
    return "ALLOWED" if stopped is None else f"DENIED {stopped}"


def run(function: Probe, context: Context, patience: float = 15.0) -> str:
    """One probe in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.write(writing, attempt(function, context).encode())
        except BaseException as error:  # anything at all is a result here
            os.write(writing, f"BROKEN {error!r}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], patience)
    text = os.read(reading, 4096).decode() if ready else ""
    os.close(reading)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if text:
        return text
    if os.WIFSIGNALED(status):
        return f"DENIED {signal.Signals(os.WTERMSIG(status)).name}"
    return "DENIED nothing"


def main() -> None:
    """argv: a file with the JSON context; prints `name<TAB>outcome` for each probe asked for."""
    for name in ("files", "kernel", "network", "processes"):
        __import__(f"inside.{name}")
    with open(sys.argv[1]) as stream:
        context: Context = json.load(stream)
    names = context.get("only") or list(PROBES)
    for name in names:
        sys.stdout.write(f"{name}\t{run(PROBES[name][1], context)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    package = type(sys)("inside")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules |= {"inside": package, "inside.kit": sys.modules["__main__"]}
    main()
