"""The home of a session whose host program names none: private, and removed with the session."""

from __future__ import annotations

import logging
import os
import secrets
import weakref
from typing import Any

_log = logging.getLogger("toolrest")
_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the name in it cannot be guessed


class TemporaryHome:
    """A new folder that only this user can read, 0700.

    It is removed by `remove`, or when `owner` is collected or the program ends. Where no folder
    can be made, `settings` has what works without one.
    """

    def __init__(self, owner: object) -> None:
        self.settings: dict[str, Any] = {}
        name = f"toolrest-{secrets.token_hex(16)}"
        problem = self._make(name)
        if problem is not None:
            _log.warning("no folder for temporary files: %s; calls run without a record", problem)
            off = ("tool_security.audit_log_enabled", "checkpoints.enabled")
            self.settings = dict.fromkeys(off, False)
        self.remove = weakref.finalize(owner, _remove, self.path, os.getpid())

    def _make(self, name: str) -> OSError | None:
        problem: OSError | None = None
        for folder in (os.environ.get("TMPDIR", ""), *_FOLDERS):
            if os.path.isabs(folder):
                self.path = os.path.join(os.path.realpath(folder), name)
                try:
                    os.mkdir(self.path, 0o700)
                except OSError as error:
                    problem = problem or error
                else:
                    return None
        return problem


def _remove(path: str, process: int) -> None:
    # A fork of the host program must not take its parent's home away.
    if os.getpid() == process and os.path.lexists(path):
        from toolrest.private_files import remove_tree

        remove_tree(path)
