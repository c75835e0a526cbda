"""The file system of the patch engine behind a session's path policy.

The engine has followed every symlink before it calls this, and folders are entered without
following any, so the policy decides on exactly the path that is read or written.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from toolrest.errors import Rejected
from toolrest.patch.files.os_files import FileTooLarge, OsFiles, Refused
from toolrest.policy.paths.names import inside
from toolrest.policy.paths.policy import PathPolicy
from toolrest.policy.paths.rules import unreadable, unwritable

_SWAPPED = (
    "it is not a path that the decision on this call covers (a folder or a link on the way was "
    "replaced meanwhile)"
)
_DRAFT = ".toolrest-"
"""Prefix of the engine's temporary names."""


class PolicyFiles(OsFiles):
    """Files of one session. A denial is a PermissionError that carries the policy's reason.

    `only` are the paths that the decision on the call covers: nothing else is written, wherever
    a folder or a link on the way leads by now.
    """

    def __init__(self, policy: PathPolicy, only: Collection[str] | None = None) -> None:
        super().__init__(policy.max_file_size)
        self.policy = policy
        self._only = only
        self._judgements: dict[str, tuple[str | None, str]] = {}

    def read(self, path: str) -> bytes:
        """The content of a regular file that may be read."""
        try:
            fd = self.policy.open_read(path)
        except Rejected as error:
            raise Refused(error.message) from None
        try:
            if os.fstat(fd).st_size > self.max_read:
                raise FileTooLarge(self.max_read)
            return self._read_all(fd)
        finally:
            os.close(fd)

    def check_size(self, path: str, size: int) -> None:
        """Raise for what could not be read again (`tool_security.max_file_access_size`)."""
        try:
            self.policy.check_size(size, path)
        except Rejected as error:
            raise Refused(error.message) from None

    def _at(self, path: str, *, writing: bool = False) -> tuple[int, bytes]:
        rule, unseen = self._judged(path)
        if writing and rule is not None:
            raise Refused(_unwritable(path, rule))
        if writing and self._only is not None and not _is_part(path, self._only):
            raise Refused(_unwritable(path, _SWAPPED))
        if unseen:
            raise Refused(unseen)
        return super()._at(path, writing=writing)

    def _judged(self, path: str) -> tuple[str | None, str]:
        """The rule against writing a path, and the denial where it may not be looked up either."""
        found = self._judgements.get(path)
        if found is None:
            rule = self.policy.write_rule(path)
            hidden = None if rule is None else self.policy.read_rule(path)
            # What lies above something that may be read may be looked up.
            roots = self.policy.read_roots or ()
            unseen = hidden is not None and not any(inside(root, path) for root in roots)
            found = rule, unreadable(path, path, hidden or "") if unseen else ""
            self._judgements[path] = found
        return found


def _unwritable(path: str, rule: str) -> str:
    """The denial message; it names the folder instead of a temporary file."""
    folder, _, name = path.rpartition("/")
    shown = folder if name.startswith(_DRAFT) else path
    return unwritable(shown, shown, rule)


def _is_part(path: str, places: Collection[str]) -> bool:
    """Whether a path is one of these, a folder above one, or our temporary file beside one."""
    if path in places or any(place.startswith(f"{path}/") for place in places):
        return True
    folder, _, name = path.rpartition("/")
    return name.startswith(_DRAFT) and any(p.rpartition("/")[0] == folder for p in places)
