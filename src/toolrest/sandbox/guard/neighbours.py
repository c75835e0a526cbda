"""Commands of other sandboxes that may write in the same folders, at the same time.

A command is kept from replacing what its own sandbox guards. What another one guards, in a session
beside it or for an MCP server, it may not know: a folder that came later, or the other's root. So
while commands run, each sandbox holds a lock on a file that names its writable roots.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import weakref
from collections.abc import Sequence
from secrets import token_hex

from toolrest.policy.paths.names import inside
from toolrest.private_files import make_private, write_all
from toolrest.process.helper.litter import lock
from toolrest.process.helper.tree import alive
from toolrest.sandbox.policy import SandboxPolicy

_FOLDER = "running"
_LONGEST = 1 << 16
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


class Neighbours:
    """One sandbox among those of this user."""

    def __init__(self, policy: SandboxPolicy, registry: str) -> None:
        self._folder = os.path.join(registry, _FOLDER)
        self._own = f"{os.getpid()}-{token_hex(8)}"
        self._roots = policy.roots
        self._places = policy.roots or (policy.workspace,)
        self._near: dict[str, bool] = {}
        self._running = 0
        self._fd = -1
        self._mutex = threading.Lock()

    def enter(self) -> tuple[int, ...]:
        """A command begins; the descriptors whose lock says so, for its keeper to hold as well."""
        if not self._roots:
            return ()  # it can bend nothing
        with self._mutex:
            if self._fd < 0:
                self._fd = self._made()
            if self._running == 0:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
            self._running += 1
        return (self._fd,)

    def leave(self) -> None:
        """A command that began has ended."""
        with self._mutex:
            if self._running > 0:
                self._running -= 1
                if self._running == 0:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def are_running(self) -> bool:
        """Whether commands run that may write in folders which this sandbox shows."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return False
        return any(name != self._own and self._runs_near(name) for name in names)

    def _made(self) -> int:
        make_private(self._folder)
        self._remove_old()
        path = os.path.join(self._folder, self._own)
        draft = f"{path}-new"
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        write_all(fd, b"\0".join(map(os.fsencode, self._roots)))
        os.rename(draft, path)
        weakref.finalize(self, _remove, fd, path, os.getpid())
        return fd

    def _remove_old(self) -> None:
        """Remove the files of processes that are gone, unless something of theirs still runs."""
        for name in os.listdir(self._folder):
            pid = name.partition("-")[0]
            if pid.isdigit() and not alive(int(pid)) and not self._is_locked(name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, name))

    def _runs_near(self, name: str) -> bool:
        if name not in self._near:
            self._near[name] = self._overlaps(self._content(name))
        return self._near[name] and self._is_locked(name)

    def _content(self, name: str) -> bytes:
        try:
            fd = os.open(os.path.join(self._folder, name), os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return b""
        try:
            return os.read(fd, _LONGEST)
        finally:
            os.close(fd)

    def _overlaps(self, content: bytes) -> bool:
        theirs: Sequence[str] = [os.fsdecode(root) for root in content.split(b"\0") if root]
        return any(inside(a, b) or inside(b, a) for a in theirs for b in self._places)

    def _is_locked(self, name: str) -> bool:
        try:
            fd = os.open(os.path.join(self._folder, name), os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return False
        try:
            return not lock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)


def _remove(fd: int, path: str, maker: int) -> None:
    os.close(fd)
    if os.getpid() == maker:
        with contextlib.suppress(OSError):
            os.unlink(path)
