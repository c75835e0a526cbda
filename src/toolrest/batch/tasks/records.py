"""Events and audit lines of a task: those of this machine, after those that others have stored."""

from __future__ import annotations

import os
from collections.abc import Iterator

from toolrest.private_files import regular_file

EVENTS, AUDIT = "events.jsonl", "audit.jsonl"


def content(path: str | None) -> bytes | None:
    """The content of a file; None when there is none."""
    if path is None:
        return None
    try:
        with open(path, "rb", opener=regular_file) as file:
            return file.read()
    except FileNotFoundError:
        return None


class Records:
    """What a task's sessions have printed, and their audit logs in its home."""

    def __init__(self, events: str, home: str) -> None:
        self._events = events
        self._audit = os.path.join(home, "audit")
        self._audit_before = b""

    def go_on_from(self, events: bytes | None, audit: bytes | None, *, is_latest: bool) -> None:
        """Go on after what is stored; with `is_latest` this machine has those events already."""
        self._audit_before = audit or b""
        if events is not None and not is_latest:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._events, flags, 0o600), "wb") as file:
                file.write(events)

    def found(self) -> dict[str, bytes | None]:
        """The files for the store by their names."""
        return {EVENTS: content(self._events), AUDIT: self._audit_lines()}

    def _audit_lines(self) -> bytes | None:
        before = self._audit_before.splitlines(keepends=True)
        known = set(before)  # each line has a hash of its own
        new = (line for log in self._logs() for line in log.splitlines(keepends=True))
        return b"".join([*before, *(line for line in new if line not in known)]) or None

    def _logs(self) -> Iterator[bytes]:
        names = sorted(os.listdir(self._audit)) if os.path.isdir(self._audit) else []
        for name in names:
            if name.endswith(".jsonl"):
                yield content(os.path.join(self._audit, name)) or b""
