"""The folder that a command runs in."""

from __future__ import annotations

import os
import stat

from toolrest.errors import Rejected, RespondToModel
from toolrest.policy.paths.policy import PathPolicy


class WorkingFolder:
    """Checks the folders that commands are to run in; the last one is known."""

    def __init__(self, files: PathPolicy) -> None:
        self._files = files
        self._last: tuple[str, int, int] | None = None

    def check(self, given: str | None) -> str:
        """The folder to run in: any that may be read; it never becomes writable by that (S6)."""
        path = self._files.resolve(given) if given else self._files.cwd
        known = _folder(path)
        if known is not None and known == self._last:
            return path  # the same folder as last time
        denied = self._files.read_denied(path)
        if denied is not None:
            raise Rejected(denied)
        if known is None:
            raise RespondToModel(
                f"the working directory {path} is not a folder", fields=("workdir",)
            )
        self._last = known
        return path


def _folder(path: str) -> tuple[str, int, int] | None:
    """Identity of the folder at a path; None when there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return (path, info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None
