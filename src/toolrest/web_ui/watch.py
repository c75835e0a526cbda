"""Wait for changes of files: the kernel says when there are some (inotify)."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterable
from types import TracebackType

_CHANGES = 0x2 | 0x4 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""modify, attributes, moved to, create, delete, delete or move itself."""
_PATIENCE = 5.0
"""Some file systems (of other machines, for one) say nothing: there one looks now and then."""


class FileWatch:
    """Waits until something happens to one of some files and folders."""

    def __init__(self, paths: Iterable[str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._changed = asyncio.Event()
        if self._fd >= 0:
            for path in paths:
                libc.inotify_add_watch(self._fd, os.fsencode(path), _CHANGES)

    async def __aenter__(self) -> FileWatch:
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> None:
        os.read(self._fd, 1 << 16)
        self._changed.set()

    async def wait(self) -> bool:
        """Return at the next change since the last wait, or after some seconds; whether it was one.

        Ask for what is there before this: a change in between is not missed.
        """
        try:
            await asyncio.wait_for(self._changed.wait(), _PATIENCE)
        except TimeoutError:
            return False
        self._changed.clear()
        return True
