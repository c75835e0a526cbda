"""The file system protocol of the patch engine; a session's path policy is one implementation."""

from __future__ import annotations

import os
from typing import Protocol


class FileSystem(Protocol):
    """Files by absolute path, one step at a time.

    Symlinks are followed by the engine, never by these methods: a path comes with its folders
    already real, and an implementation refuses one whose folders have since become symlinks.
    Every refusal is an OSError; a policy denies by PermissionError. Names beside a target are
    written too (temporary files in its folder), so a target needs permission for its folder, too.
    """

    def lstat(self, path: str) -> os.stat_result:
        """Status of a path, without following a symlink."""

    def readlink(self, path: str) -> str:
        """Target of a symlink, as written."""

    def read(self, path: str) -> bytes:
        """The content of a regular file, never waiting. NotAFile and TooLarge are refusals."""

    def check_size(self, path: str, size: int) -> None:
        """Raise where a file may not become so large."""

    def check_writable(self, path: str) -> None:
        """Raise unless this existing file may be written, without changing it."""

    def create(self, path: str, data: bytes, like: str | None) -> bool:
        """Make a new file, flushed to disk.

        It gets the mode, owner and extended attributes of the file `like`, else the defaults.
        False when the owner or an attribute could not be given.
        """

    def overwrite(self, path: str, data: bytes) -> None:
        """Give an existing file this content in place: same inode, flushed to disk."""

    def rename(self, old: str, new: str) -> None:
        """Put one name in the place of another, at once."""

    def link(self, old: str, new: str) -> None:
        """Make a second name for the same file."""

    def unlink(self, path: str) -> None:
        """Remove a name."""

    def mkdir(self, path: str) -> None:
        """Make one folder."""

    def rmdir(self, path: str) -> None:
        """Remove one empty folder."""

    def chmod(self, path: str, mode: int) -> None:
        """Change the permission bits of a regular file."""

    def sync(self, folder: str) -> None:
        """Flush the names in a folder to disk, as far as the system can."""
