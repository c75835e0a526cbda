"""The request that asks the helper for a command: descriptors and one memory file."""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterable
from functools import lru_cache

from toolrest.process.command import Command
from toolrest.process.helper import wire
from toolrest.process.output import streams

Plan = list[tuple[int, int]]
Variables = tuple[tuple[str, str], ...]


def unfit(command: Command) -> str:
    """The reason why a command cannot be started; empty when it can."""
    if not command.argv or not command.argv[0]:
        return "the command is empty: give the program as the first element"
    if "\0" in "".join(command.argv):
        index = next(i for i, argument in enumerate(command.argv) if "\0" in argument)
        return f"argument {index} of the command contains a NUL character"
    if "\0" in command.cwd:
        return "the working directory contains a NUL character"
    if len(command.fds) + len(command.held) + 8 > wire.MAX_FDS:
        return f"{len(command.fds)} descriptors are too many for one command"
    return _unfit_environment(tuple(command.env.items()))


@lru_cache(maxsize=8)  # the same variables come with every command of a session
def _unfit_environment(env: Variables) -> str:
    for name, value in env:
        if not name or "=" in name or "\0" in name or "\0" in value:
            return f"the environment variable {name!r} cannot be passed to a program"
    return ""


@lru_cache(maxsize=8)
def _encoded(env: Variables) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((os.fsencode(name), os.fsencode(value)) for name, value in env)


def stdio(
    command: Command, merge: bool, sent: list[int], reading: list[int]
) -> tuple[Plan, tuple[int, int] | None]:
    """Make pipes or a terminal: what the child gets, and the terminal's identity.

    The plan's indices count the descriptors meant for the child: ours first, then the command's.
    """
    device = None
    before = len(sent)
    if command.tty:
        master, slave = streams.open_terminal(command.rows, command.cols)
        reading.append(master)
        sent.append(slave)
        status = os.fstat(slave)
        device = (status.st_dev, status.st_rdev)
        plan = [(0, 0), (1, 0), (2, 0)]
    else:
        plan = [(0, wire.NULL)]
        for index, targets in enumerate([(1, 2)] if merge else [(1,), (2,)]):
            read, write = os.pipe()
            reading.append(read)
            sent.append(write)
            plan += [(target, index) for target in targets]
    ours = len(sent) - before
    plan += [(target, ours + index) for index, (target, _) in enumerate(command.fds)]
    return plan, device


def payload(command: Command, plan: Plan) -> bytes:
    """The request in bytes; see `helper.launch.Request` for its order."""
    rules = command.landlock
    return marshal.dumps(
        (
            os.fsencode("\0".join(command.argv)),
            os.fsencode(command.cwd),
            _encoded(tuple(command.env.items())),
            command.tty,
            tuple(plan),
            command.files,
            None if rules is None else tuple((os.fsencode(path), mask) for path, mask in rules),
            command.landlock_net,
            command.landlock_scoped,
            command.seccomp,
            command.limits,
            command.linked_bytes(),
            command.apart,
            None if command.check is None else command.check.as_bytes(),
            tuple((os.fsencode(path), os.fsencode(shown)) for path, shown in command.masks),
            len(command.held),
            command.own_pid_namespace,
        )
    )


def memory_file(data: bytes) -> int:
    """A memory file with a request that is too long for one packet."""
    fd = os.memfd_create("toolrest-request", os.MFD_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors, also those that are closed already."""
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            continue
