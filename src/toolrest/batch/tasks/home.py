"""A task's own home: the user's settings, keys and rules; sessions and grants of its own.

It lies in the user's home, which is hidden from all tools, of other tasks as well. People keep
settings in another folder and link to them: what a link leads to is copied, so that a task has the
same rules as a plain `exec`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress

from toolrest.batch.stores.store import Store
from toolrest.errors import ConfigError
from toolrest.policy.paths.names import inside
from toolrest.private_files import make_private, remove_tree

_STATE = frozenset(
    {
        "approvals", "audit", "auth", "batch", "cache", "chat", "checkpoints", "control", "log",
        "reports", "run", "sessions", "spill", "told", "vm",
    }
)  # fmt: skip
"""What a home gathers in use, and a task has of its own; logins (`auth`) stay with the user."""
_SERVER_CACHES = os.path.join("mcp", "cache")
_RULES = "rules"
_EDITORS_LOCK = ".#"
"""How the names of Emacs's locks begin: links that lead nowhere."""
_MOST_FILES = 100_000
_MOST_BYTES = 1 << 30


def store_name(store: Store) -> str:
    """A short name for a store, for files of this machine."""
    return hashlib.sha256(store.url.encode()).hexdigest()[:16]


def state_folder(home: str, store: Store, key: str) -> str:
    """The folder of what this machine knows of a task until it has its result."""
    return os.path.join(home, "batch", store_name(store), key)


def make_task_home(user_home: str, state: str, written: Iterable[str] = ()) -> str:
    """Make a task's home, or bring its settings up to date; returns its path.

    `written` are folders that tools may write. ConfigError names a link that leads there, and what
    cannot be read: a task without one of the user's rules must not run.
    """
    home = os.path.join(state, "home")
    make_private(home)
    _Copy(user_home, home, written).folder("", (), is_linked=False)
    return home


def check_home(user_home: str, written: Iterable[str]) -> None:
    """ConfigError for what would stop every task, as `make_task_home` does; nothing is made."""
    if os.path.isdir(user_home):
        _Copy(user_home, None, written).folder("", (), is_linked=False)


class _Copy:
    """One copy of the user's home, from links' targets where there are links.

    Without a `target` it is only seen whether it can be made.
    """

    def __init__(self, source: str, target: str | None, written: Iterable[str]) -> None:
        self._source = source
        self._target = target
        self._real = os.path.realpath(source)
        self._written = [os.path.realpath(path) for path in written]
        self._linked_files = 0
        self._linked_bytes = 0

    def folder(self, name: str, above: tuple[tuple[int, int], ...], *, is_linked: bool) -> None:
        """Copy what is in a folder of the home; `above` are the folders that it lies in."""
        path = os.path.join(self._source, name)
        try:
            status = os.stat(path)
            names = os.listdir(path)
        except OSError as error:
            if not os.path.lexists(path):  # the user has just removed it
                return
            raise _unreadable(path, error) from None
        known = (status.st_dev, status.st_ino)
        if known in above:
            raise ConfigError(f"{path} leads back to a folder that it lies in; remove the link")
        for entry in names:
            inner = os.path.join(name, entry)
            if not _is_left_out(inner):
                self._entry(inner, (*above, known), is_linked=is_linked)

    def _entry(self, name: str, above: tuple[tuple[int, int], ...], *, is_linked: bool) -> None:
        path = os.path.join(self._source, name)
        target = None if self._target is None else os.path.join(self._target, name)
        try:
            status = os.stat(path)
        except OSError as error:
            if not _is_missing(error):
                raise _unreadable(path, error) from None
            self._check_missing(name)
            return
        if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            return
        is_linked = is_linked or os.path.islink(path)
        if is_linked:
            self._check_linked(path, status.st_size)
        if target is not None and not above[1:]:
            _remove(target)
        if stat.S_ISREG(status.st_mode):
            _copy_file(path, target)
            return
        if target is not None:
            os.mkdir(target, 0o700)
        self.folder(name, above, is_linked=is_linked)

    def _check_missing(self, name: str) -> None:
        """ConfigError for a link that leads nowhere, where something of the user's would miss."""
        path = os.path.join(self._source, name)
        top, _, rest = name.partition(os.sep)
        is_needed = top == _RULES or not rest
        if not os.path.islink(path) or not is_needed:
            return
        if not os.path.basename(name).startswith(_EDITORS_LOCK):
            raise ConfigError(
                f"{path} is a link to {os.readlink(path)}, which is not there; "
                "correct the link or remove it"
            )

    def _check_linked(self, path: str, size: int) -> None:
        """ConfigError if tools may write what a link leads to, or if there is too much of it."""
        real = os.path.realpath(path)
        roots = () if inside(real, self._real) else self._written
        for root in roots:
            if inside(real, root):
                raise ConfigError(
                    f"{path} leads to {real}, which lies in {root}, where tools of a task may "
                    f"write; put the file itself into {self._source}"
                )
        self._linked_files += 1
        self._linked_bytes += size
        if self._linked_files > _MOST_FILES or self._linked_bytes > _MOST_BYTES:
            raise ConfigError(
                f"{path}: links in {self._source} lead to more than {_MOST_FILES:,} files or "
                f"{_MOST_BYTES >> 20} MB; every task has a copy of them, so link to less"
            )


def _copy_file(path: str, target: str | None) -> None:
    try:
        # Not blocking: a pipe may have taken the file's place since.
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if not os.path.lexists(path):  # the user has just removed it
            return
        raise _unreadable(path, error) from None
    with os.fdopen(source, "rb") as file:
        if target is None:
            return
        status = os.fstat(source)
        mode = 0o700 if status.st_mode & stat.S_IXUSR else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags, mode), "wb") as copy:
            shutil.copyfileobj(file, copy)
    # Python knows by the time of a tool's source whether what it has compiled is of that.
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _remove(path: str) -> None:
    remove_tree(path)
    with suppress(FileNotFoundError):
        os.unlink(path)


def _is_left_out(name: str) -> bool:
    if os.sep not in name:
        return name in _STATE or name.endswith((".lock", ".sock"))
    return name == _SERVER_CACHES


def _is_missing(error: OSError) -> bool:
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _unreadable(path: str, error: OSError) -> ConfigError:
    return ConfigError(f"cannot read {path}, of which every task has a copy: {error.strerror}")
