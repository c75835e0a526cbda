"""A store by fsspec: whatever it has a file system for. The extra `batch` brings fsspec."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.spec import AbstractFileSystem

from toolrest.errors import ConfigError


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Make an OSError of what a file system raises: its errors are of any class."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error


def _has_own_create(fs: Any) -> bool:
    """Whether a file system creates files in a way of its own.

    The one that fsspec gives to all looks whether the file is there, and then writes it.
    """
    while isinstance(fs, DirFileSystem):
        fs = fs.fs
    if fs.async_impl:
        return type(fs)._pipe_file is not AsyncFileSystem._pipe_file
    return type(fs).pipe_file is not AbstractFileSystem.pipe_file


class FsspecStore:
    """A folder of an fsspec file system. Object stores replace files whole by themselves."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"the store {url}: {error}") from None
        self.is_exclusive = _has_own_create(self._fs)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else str(self._root)

    @_as_os_error()
    def read(self, name: str) -> bytes | None:
        """The content of a file; None when there is none."""
        try:
            data: bytes = self._fs.cat_file(self._at(name))
        except FileNotFoundError:
            return None
        return data

    @_as_os_error()
    def write(self, name: str, data: bytes) -> None:
        """Give a file this content."""
        self._prepare(name)
        self._fs.pipe_file(self._at(name), data)

    @_as_os_error()
    def create(self, name: str, data: bytes) -> bool:
        """Make a file by the store's own exclusive create."""
        self._prepare(name)
        try:
            self._fs.pipe_file(self._at(name), data, mode="create")
        except FileExistsError:
            return False
        except Exception as error:
            if "PreconditionFailed" in f"{type(error).__name__} {error}":
                return False
            raise
        return True

    def _prepare(self, name: str) -> None:
        # Buckets have no folders, and most of them ignore this.
        self._fs.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)

    @_as_os_error()
    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            self._fs.rm_file(self._at(name))
        except FileNotFoundError:
            return

    @_as_os_error()
    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self._fs.exists(self._at(name)))

    @_as_os_error()
    def folders(self, name: str, having: str) -> set[str]:
        """The names of the folders in a folder that have a file of this name, in one listing."""
        try:
            found: list[str] = self._fs.find(self._at(name))
        except FileNotFoundError:
            return set()
        parts = [path.rsplit("/", 2) for path in found]
        return {part[1] for part in parts if part[2] == having}

    @_as_os_error()
    def files(self, name: str) -> list[str]:
        """The names of the files in a folder."""
        try:
            rows: list[dict[str, Any]] = self._fs.ls(self._at(name), detail=True)
        except FileNotFoundError:
            return []
        return [row["name"].rpartition("/")[2] for row in rows if row["type"] == "file"]
