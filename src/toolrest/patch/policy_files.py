"""The file system as a session's path policy lets the patch engine see it.

The engine has followed every symlink before it comes here, and folders are entered without
following any, so what is judged is the very place that is read or written.
"""

from __future__ import annotations

import os

from toolrest.errors import Rejected
from toolrest.patch.os_files import OsFiles, Refused, TooLarge
from toolrest.policy.names import inside
from toolrest.policy.path_rules import unreadable, unwritable
from toolrest.policy.paths import PathPolicy


class PolicyFiles(OsFiles):
    """Files of one session. A refusal is a PermissionError that carries the policy's words."""

    def __init__(self, policy: PathPolicy) -> None:
        super().__init__(policy.max_file_size)
        self.policy = policy

    def read(self, path: str) -> bytes:
        """The content of a regular file that may be read."""
        try:
            fd = self.policy.open_read(path)
        except Rejected as error:
            raise Refused(error.message) from None
        try:
            if os.fstat(fd).st_size > self.max_read:
                raise TooLarge(self.max_read)
            return self._read_all(fd)
        finally:
            os.close(fd)

    def _at(self, path: str, *, writing: bool = False) -> tuple[int, bytes]:
        rule = self.policy.write_rule(path)
        if writing and rule is not None:
            raise Refused(unwritable(path, path, rule))
        if rule is not None and not self._may_see(path):
            raise Refused(unreadable(path, path, self.policy.read_rule(path) or rule))
        return super()._at(path, writing=writing)

    def _may_see(self, path: str) -> bool:
        """Whether a place may be looked at: to read it, or on the way to something readable."""
        if self.policy.read_rule(path) is None:
            return True
        roots = self.policy.read_roots or ()
        return any(inside(root, path) for root in roots)
