"""How is a placeholder told from what a user has made? By its time of change."""

from __future__ import annotations

import contextlib
import os

_EMPTY_SINCE = 1_000_000_000 * 10**9
"""In whole seconds, and an even number of them, which every file system can store."""


def is_marked(info: os.stat_result) -> bool:
    """Whether this is a placeholder of ours, made or kept, that nobody has changed since."""
    return info.st_mtime_ns == _EMPTY_SINCE


def mark(file: int | bytes) -> None:
    """Set the time of change by which a placeholder is known, where the file system takes it."""
    with contextlib.suppress(OSError):
        os.utime(file, ns=(_EMPTY_SINCE, _EMPTY_SINCE))
