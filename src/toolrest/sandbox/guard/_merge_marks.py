"""How is a placeholder told from what a user has made? By its time of change.

The time also says whose it is: sessions that do not share their records (another user's, or with
another home) cannot know what the others still use, and must not clean up after them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from functools import cache

_FIRST = 1_000_000_000
_COUNT = 1 << 20
_SECOND = 10**9
_FILE = "mark"


@cache
def mark_of(registry: str) -> int:
    """The time by which placeholders of the sessions that share this folder are known.

    In whole seconds, and an even number of them, which every file system can store.
    """
    path = os.path.join(registry, _FILE)
    with contextlib.suppress(FileExistsError):
        draft = f"{path}-{secrets.token_hex(8)}"
        try:
            with open(draft, "x") as file:
                file.write(str(secrets.randbelow(_COUNT)))
            os.link(draft, path)
        finally:
            os.unlink(draft)
    with open(path) as file:
        text = file.read(16)
    number = int(text) % _COUNT if text.isascii() and text.isdigit() else 0
    return (_FIRST + 2 * number) * _SECOND


def is_marked(info: os.stat_result) -> bool:
    """Whether this is anybody's placeholder, made or kept, that nobody has changed since."""
    seconds, rest = divmod(info.st_mtime_ns, _SECOND)
    return rest == 0 and seconds % 2 == 0 and _FIRST <= seconds < _FIRST + 2 * _COUNT


def mark(file: int | bytes, time: int) -> None:
    """Set the time of change by which a placeholder is known, where the file system takes it."""
    with contextlib.suppress(OSError):
        os.utime(file, ns=(time, time))
