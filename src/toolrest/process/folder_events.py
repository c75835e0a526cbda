"""Events of folders (inotify): something was made, written, moved or removed right in one."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterable

_CHANGES = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""modify, attributes, written and closed, moved from and to, create, delete, itself gone."""
_NO_LINK = 0x01000000 | 0x02000000
"""Folders only, and not through a link."""


class FolderEvents:
    """Calls back on the running event loop when something happens in a folder, until closed."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._read)

    def watch(self, folders: Iterable[str]) -> bool:
        """Watch these folders too, and say whether all are; one that is already stays so."""
        add = self._libc.inotify_add_watch
        if self._fd < 0:
            return False
        found = [add(self._fd, os.fsencode(folder), _CHANGES | _NO_LINK) for folder in folders]
        return min(found, default=0) >= 0

    def _read(self) -> None:
        os.read(self._fd, 1 << 16)
        self._on_event()

    def close(self) -> None:
        """Watch no more."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)
            os.close(fd)
