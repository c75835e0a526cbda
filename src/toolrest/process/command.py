"""What to start: everything about one child that is decided before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One child process, as the sandbox room hands it to the process room.

    `files` become sealed in-memory files and `fds` are handed over as they are; both name the
    descriptor that the child sees. Every other descriptor is closed. Landlock, seccomp and the
    limits are applied in the child, in that order, right before exec; a step that the kernel
    refuses means that the child never runs. Paths of `landlock` that do not exist are skipped,
    since nothing can be granted beneath them.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    tty: bool = False
    rows: int = 24
    cols: int = 80
    files: tuple[tuple[int, bytes], ...] = ()
    fds: tuple[tuple[int, int], ...] = ()
    landlock: tuple[tuple[str, int], ...] | None = None
    landlock_net: bool = False
    landlock_scoped: int = 0
    seccomp: bytes | None = None
    limits: tuple[tuple[int, int, int], ...] = ()
    own_pid_namespace: bool = False
