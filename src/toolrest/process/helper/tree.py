"""A process tree from /proc: list the descendants of a process, and end them all."""

from __future__ import annotations

import os
import time

SIGKILL, SIGCONT, SIGSTOP = 9, 18, 19
_FREEZE_ROUNDS = 50


def descendants(root: int) -> list[int]:
    """Every living descendant of a process, parents before their children."""
    if not os.path.exists("/proc/self/task/" + str(os.getpid()) + "/children"):
        return _walk(root, _by_parent())
    return _walk(root, None)


def _walk(root: int, table: dict[int, list[int]] | None) -> list[int]:
    found: list[int] = []
    seen = {root}
    waiting = [root]
    while waiting:
        pid = waiting.pop(0)
        for child in children(pid) if table is None else table.get(pid, []):
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return found


def children(pid: int) -> list[int]:
    """The children of all threads of a process, as far as the kernel lists them."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def _by_parent() -> dict[int, list[int]]:
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields:
                table.setdefault(int(fields[1]), []).append(int(name))
    return table


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    """True for a process that still runs; a zombie is dead."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def send(pids: list[int], signal_number: int) -> None:
    """Send a signal to each process; skip those that are gone or not ours."""
    for pid in pids:
        try:
            os.kill(pid, signal_number)
        except OSError:
            continue


def strike(root: int) -> None:
    """Stop the whole tree, so that no process can fork or react, then kill it."""
    stopped: set[int] = set()
    for _ in range(_FREEZE_ROUNDS):
        fresh = [pid for pid in descendants(root) if pid not in stopped]
        if not fresh:
            break
        send(fresh, SIGSTOP)
        stopped.update(fresh)
    send(descendants(root), SIGKILL)


def deadline(seconds: float) -> float:
    """A point in time on the clock that `left` reads."""
    return time.monotonic() + seconds


def left(until: float) -> int:
    """Milliseconds until a deadline, for poll; never negative."""
    return max(0, int((until - time.monotonic()) * 1000))
