"""Stores of a batch: files by name, in a local folder or by fsspec (`s3:`, `gs:` …).

What runners rely on is small: a write replaces a file whole or not at all, and `create` succeeds
for exactly one of those who try. A store without the second is refused for several runners.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from typing import Protocol

from toolrest.errors import ConfigError
from toolrest.private_files import make_private, regular_file, write_all

_OFTEN = re.compile(r"runners/|tasks/[^/]+/lease-")
"""Names of heartbeats: they are written every few seconds, and must not wait for a disk."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Store(Protocol):
    """Files by relative names with `/`. Every method may raise OSError."""

    url: str
    is_exclusive: bool
    """Whether `create` is known to be no check and then a write, between which another fits."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None when there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Give a file this content, whole or not at all."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file; False when it is there already. Exactly one caller gets True."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""

    def has(self, name: str) -> bool:
        """Whether there is such a file."""

    def folders(self, name: str, having: str) -> set[str]:
        """The names of the folders in a folder that have a file of this name."""

    def files(self, name: str) -> list[str]:
        """The names of the files in a folder; empty when there is none."""


class FolderStore:
    """A local or shared folder. Everything in it is for this user alone."""

    is_exclusive = True

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.url = self.path

    def _at(self, name: str) -> str:
        return os.path.join(self.path, *name.split("/"))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None when there is none."""
        try:
            with open(self._at(name), "rb", opener=regular_file) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a new file beside it and put that in its place."""
        path = self._at(name)
        temporary = f"{path}.{secrets.token_hex(6)}.tmp"
        self._make(temporary, data, is_lasting=not _OFTEN.match(name))
        try:
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def create(self, name: str, data: bytes) -> bool:
        """Link a complete new file to the name: readers never see half of it."""
        path = self._at(name)
        if os.path.lexists(path):
            return False
        temporary = f"{path}.{secrets.token_hex(6)}.tmp"
        self._make(temporary, data, is_lasting=not _OFTEN.match(name))
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def _make(self, path: str, data: bytes, *, is_lasting: bool) -> None:
        try:
            fd = os.open(path, _NEW, 0o600)
        except FileNotFoundError:
            make_private(os.path.dirname(path))
            fd = os.open(path, _NEW, 0o600)
        try:
            write_all(fd, data)
            if data and is_lasting:
                os.fsync(fd)  # or a crash of the machine leaves an empty file under the name
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(fd)

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name))

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self._at(name))

    def folders(self, name: str, having: str) -> set[str]:
        """The names of the folders in a folder that have a file of this name."""
        return {
            entry.name
            for entry in self._scan(name)
            if os.path.exists(os.path.join(entry.path, having))
        }

    def files(self, name: str) -> list[str]:
        """The names of the files in a folder."""
        return [entry.name for entry in self._scan(name) if entry.is_file(follow_symlinks=False)]

    def _scan(self, name: str) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._at(name)) as entries:
            yield from entries


def open_store(url: str) -> Store:
    """The store of a folder's path or a URL that fsspec knows."""
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    if "://" not in url:
        return FolderStore(url)
    # Only for stores that are no folder; an extra.
    from toolrest.batch.stores.fsspec_store import FsspecStore

    return FsspecStore(url)


def check_store(store: Store, *, several: bool) -> bool:
    """Whether the store keeps several runners apart.

    ConfigError when it cannot be written, or does not and there are `several`.
    """
    probe = f"probes/{secrets.token_hex(8)}"
    try:
        first, second = store.create(probe, b"1"), store.create(probe, b"2")
        store.delete(probe)
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConfigError(f"cannot write to the store {store.url}: {reason}") from None
    is_exclusive = store.is_exclusive and first and not second
    if several and not is_exclusive:
        raise ConfigError(
            f"the store {store.url} cannot create a file exclusively, so it cannot keep several "
            "runners apart: use another store, or one runner without --shard"
        )
    return is_exclusive
