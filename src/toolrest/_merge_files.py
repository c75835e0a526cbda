"""What a file holds, as a hash for events and the audit log."""

from __future__ import annotations

import hashlib
import os
import stat

_CHUNK = 1 << 20


NOT_HASHED = "(not hashed)"


def hash_file(path: str, most: int | None = None) -> str | None:
    """SHA-256 of a regular file's content; None when there is none or it cannot be read.

    With `most`, a larger file gets `NOT_HASHED` instead.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        if most is not None and status.st_size > most:
            return NOT_HASHED
        digest = hashlib.sha256()
        while chunk := os.read(fd, _CHUNK):
            digest.update(chunk)
        return digest.hexdigest()
    except OSError:
        return None
    finally:
        os.close(fd)
