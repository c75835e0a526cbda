"""Is somebody still at work on this? Whoever is holds a lock, which ends with its process."""

from __future__ import annotations

import os


def is_locked(path: str) -> bool:
    """Whether a process holds a lock on this file; OSError when it cannot be opened."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
