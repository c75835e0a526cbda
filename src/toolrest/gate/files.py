"""What a file holds, as a hash for events and the audit log."""

from __future__ import annotations

import hashlib
import os
import stat

_CHUNK = 1 << 20


def hash_file(path: str) -> str | None:
    """SHA-256 of a regular file's content; None when there is none or it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        digest = hashlib.sha256()
        while chunk := os.read(fd, _CHUNK):
            digest.update(chunk)
        return digest.hexdigest()
    except OSError:
        return None
    finally:
        os.close(fd)
