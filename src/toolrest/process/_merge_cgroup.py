"""A control group for a session, where one can be made: a second net below the helper's.

The helper alone finds every descendant, unless a command kills the helper and its keepers first.
What then lives on is still in the session's group, and the kernel ends a group as a whole.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
from collections.abc import Mapping

_EMPTY_MS = 2000


def create(limits: Mapping[str, str]) -> tuple[str | None, frozenset[str]]:
    """Make a group below our own: its folder, and the names of the limits that it took."""
    try:
        folder = os.path.join(_own(), f"toolrest-{os.getpid()}-{secrets.token_hex(4)}")
        os.mkdir(folder)
    except OSError:
        return None, frozenset()
    taken = {name for name, value in limits.items() if _write(folder, name, value)}
    return folder, frozenset(taken)


def destroy(folder: str) -> None:
    """Kill whoever is left in a group and remove it."""
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
    """Folder of the version 2 group that this process is in."""
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
