"""Detects a process that waits for terminal input, from /proc where the kernel allows it.

True when a process of the terminal's foreground group sleeps in a system call that reads the
terminal, or that waits for it among descriptors none of which is a network socket (a server that
also listens to its keyboard is busy, not waiting). Unknown, and then False: other architectures
than x86-64 and arm64, kernels or containers without /proc/PID/syscall, programs that changed
their user id, and programs that poll with a time limit and happen to be awake.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterable

from toolrest.process.helper import tree

_READ, _SELECT, _POLL, _EPOLL = "read", "select", "poll", "epoll"
_CALLS: dict[str, dict[int, str]] = {
    "x86_64": {
        0: _READ,
        19: _READ,
        7: _POLL,
        271: _POLL,
        23: _SELECT,
        270: _SELECT,
        232: _EPOLL,
        281: _EPOLL,
        441: _EPOLL,
    },
    "aarch64": {63: _READ, 65: _READ, 73: _POLL, 72: _SELECT, 22: _EPOLL, 441: _EPOLL},
}
_POLLFD = struct.Struct("ihh")
_POLLIN = 1
_MOST = 64


def waits_for_input(pids: Iterable[int], group: int, device: tuple[int, int]) -> bool:
    """True when one of the processes, in this foreground group, waits for this terminal."""
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return False
    return any(_in_group(pid, group) and _waits(pid, calls, device) for pid in pids)


def _in_group(pid: int, group: int) -> bool:
    fields = tree.stat_fields(pid)
    return len(fields) > 2 and fields[0] == b"S" and (group <= 0 or int(fields[2]) == group)


def _waits(pid: int, calls: dict[int, str], device: tuple[int, int]) -> bool:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return any(_thread_waits(pid, thread, calls, device) for thread in threads)


def _thread_waits(pid: int, thread: str, calls: dict[int, str], device: tuple[int, int]) -> bool:
    try:
        with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as file:
            words = file.read().split()
        kind = calls.get(int(words[0]))
        arguments = [int(word, 16) for word in words[1:5]]
    except (OSError, ValueError, IndexError):
        return False  # gone, running, or not ours to read
    if kind is None:
        return False
    try:
        watched = _watched(pid, kind, arguments)
    except (OSError, ValueError, struct.error):
        return False
    return _is_terminal(pid, watched, device) and not _any_socket(pid, watched)


def _watched(pid: int, kind: str, arguments: list[int]) -> list[int]:
    """Descriptors that a blocked call waits for."""
    if kind == _READ:
        return [arguments[0]]
    if kind == _SELECT:
        return _bits(pid, arguments)
    if kind == _POLL:
        count = min(arguments[1], _MOST)
        raw = _memory(pid, arguments[0], count * _POLLFD.size)
        return [fd for fd, events, _ in _POLLFD.iter_unpack(raw) if events & _POLLIN]
    with open(f"/proc/{pid}/fdinfo/{arguments[0]}", encoding="ascii") as file:
        return [int(line.split()[1]) for line in file if line.startswith("tfd:")]


def _bits(pid: int, arguments: list[int]) -> list[int]:
    """Members of select's read set; its first argument is one more than the highest."""
    count, address = min(arguments[0], 1024), arguments[1]
    if not address:
        return []
    raw = _memory(pid, address, (count + 63) // 64 * 8)
    return [fd for fd in range(count) if raw[fd // 8] >> fd % 8 & 1]


def _memory(pid: int, address: int, size: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        return os.pread(file.fileno(), size, address)


def _is_terminal(pid: int, watched: list[int], device: tuple[int, int]) -> bool:
    for fd in watched:
        try:
            status = os.stat(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if (status.st_dev, status.st_rdev) == device or _is_own_tty(status.st_rdev, pid, device):
            return True
    return False


def _is_own_tty(rdev: int, pid: int, device: tuple[int, int]) -> bool:
    """`/dev/tty` stands for the controlling terminal, whose number is in stat."""
    if rdev != os.makedev(5, 0):
        return False
    fields = tree.stat_fields(pid)
    return len(fields) > 4 and int(fields[4]) == device[1]


def _any_socket(pid: int, watched: list[int]) -> bool:
    for fd in watched:
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                return True
        except OSError:
            continue
    return False
