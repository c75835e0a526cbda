"""How much may a session's commands take? By control group where one can be made, else by process.

A control group counts all commands of the session together. Without one the kernel's limits of
single processes stand in: memory and file size for each process, and for the number of processes
how many more this user may have than when the command started.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Collection

from toolrest.records import dataclass

Rlimits = tuple[tuple[int, int, int], ...]

_ROOT = "limits.processes: not enforced, since root is exempt and no control group can be made here"


@dataclass(frozen=True, slots=True)
class Limits:
    """The user's ceilings; None leaves a thing unlimited. Core dumps are always off."""

    processes: int | None = None
    memory: int | None = None
    file_size: int | None = None

    def __bool__(self) -> bool:
        return not (self.processes is None and self.memory is None and self.file_size is None)

    def for_cgroup(self) -> dict[str, str]:
        """What to write to the session's control group."""
        wanted = {"pids.max": self.processes, "memory.max": self.memory}
        return {name: str(value) for name, value in wanted.items() if value is not None}

    def for_process(self, taken: Collection[str]) -> Rlimits:
        """What each command must be given, besides the files of the group that took a limit."""
        found: list[tuple[int, int]] = []
        if self.processes is not None and "pids.max" not in taken and os.geteuid() != 0:
            found.append((resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + self.processes))
        if self.memory is not None and "memory.max" not in taken:
            found.append((resource.RLIMIT_DATA, self.memory))
        if self.file_size is not None:
            found.append((resource.RLIMIT_FSIZE, self.file_size))
        return tuple((which, value, value) for which, value in found)

    def unmet(self, taken: Collection[str]) -> tuple[str, ...]:
        """Which of them nothing enforces here, in words."""
        lacking = self.processes is not None and "pids.max" not in taken and os.geteuid() == 0
        return (_ROOT,) if lacking else ()


def _tasks_of(user: int) -> int:
    """How many processes and threads a user has now, as the kernel counts them for its limit."""
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
