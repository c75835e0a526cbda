"""Resource limits of a session's commands: a control group where possible, else per process.

A control group counts all commands of the session together. Without one the kernel's limits of
single processes stand in: memory and file size for each process, and for the number of processes
how many more this user may have than when the command started.

The group is also a second way to end all commands: should one kill the helper and its keepers,
its processes are still in the group, and the kernel kills a group as a whole.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import select
from collections.abc import Collection, Mapping

from msgspec import Struct

Rlimits = tuple[tuple[int, int, int], ...]

_ROOT = "limits.processes: not enforced, since root is exempt and no control group can be made here"


class Limits(Struct, frozen=True):
    """The user's ceilings; None leaves a thing unlimited. Core dumps are always off."""

    processes: int | None = None
    memory: int | None = None
    file_size: int | None = None

    def __bool__(self) -> bool:
        return not (self.processes is None and self.memory is None and self.file_size is None)

    def for_cgroup(self) -> dict[str, str]:
        """Limits to write to the session's control group, by file name."""
        wanted = {"pids.max": self.processes, "memory.max": self.memory}
        return {name: str(value) for name, value in wanted.items() if value is not None}

    def for_process(self, taken: Collection[str]) -> Rlimits:
        """Limits to set on each process, for lack of a control group's file in `taken`."""
        found: list[tuple[int, int]] = []
        if self.processes is not None and "pids.max" not in taken and os.geteuid() != 0:
            found.append((resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + self.processes))
        if self.memory is not None and "memory.max" not in taken:
            found.append((resource.RLIMIT_DATA, self.memory))
        if self.file_size is not None:
            found.append((resource.RLIMIT_FSIZE, self.file_size))
        return tuple((which, value, value) for which, value in found)

    def unmet(self, taken: Collection[str]) -> tuple[str, ...]:
        """Messages about the limits that nothing enforces here."""
        lacking = self.processes is not None and "pids.max" not in taken and os.geteuid() == 0
        return (_ROOT,) if lacking else ()


def _tasks_of(user: int) -> int:
    """Number of processes and threads of a user now, as the kernel counts them for its limit."""
    count = 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit():
                continue
            try:
                if entry.stat().st_uid == user:
                    count += len(os.listdir(f"/proc/{entry.name}/task"))
            except OSError:
                continue
    return count


_EMPTY_MS = 2000


def create(limits: Mapping[str, str]) -> tuple[str | None, frozenset[str]]:
    """Make a control group below our own: its folder, and the names of the limits it took."""
    try:
        folder = os.path.join(_own(), f"toolrest-{os.getpid()}-{secrets.token_hex(4)}")
        os.mkdir(folder)
    except OSError:
        return None, frozenset()
    taken = {name for name, value in limits.items() if _write(folder, name, value)}
    return folder, frozenset(taken)


def destroy(folder: str) -> None:
    """Kill the processes left in a control group and remove it."""
    _write(folder, "cgroup.kill", "1")
    with contextlib.suppress(OSError):
        events = os.open(os.path.join(folder, "cgroup.events"), os.O_RDONLY)
        try:
            changed = select.poll()
            changed.register(events, select.POLLPRI)
            while b"populated 1" in os.pread(events, 4096, 0) and changed.poll(_EMPTY_MS):
                pass
        finally:
            os.close(events)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _write(folder: str, name: str, value: str) -> bool:
    if "/" in name:
        return False
    try:
        fd = os.open(os.path.join(folder, name), os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(fd, value.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _own() -> str:
    """Folder of the version 2 control group of this process."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        paths = [line.rstrip("\n")[3:] for line in file if line.startswith("0::/")]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 ") and paths:
                root, place = before.split()[3:5]
                inside = os.path.relpath(paths[0], root)
                if not inside.startswith(".."):
                    return os.path.normpath(os.path.join(place, inside))
    raise FileNotFoundError("no version 2 control group is mounted")
