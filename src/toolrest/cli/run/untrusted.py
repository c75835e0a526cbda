"""A run in a folder that is not trusted: its line at the start, and the count at the end."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolrest.answer import Answer
from toolrest.events import Event, ToolCallDecision, ToolCallEnd
from toolrest.policy.paths.names import inside

if TYPE_CHECKING:
    from toolrest.policy.paths.policy import PathPolicy

WAY = "(`toolrest trust`, or -s workspace-write)"
HEADER = f"read-only: this folder is not trusted {WAY}"
_BLOCKED = re.compile(r"writing to (/[^,\n]*?)(?=, |; | and \d+ more|$)", re.MULTILINE)
_NEVER = "blocked by read-only sandbox"


class UntrustedDenials:
    """A listener that counts calls which a trusted folder would have let through.

    Those whose writes are all in the folder; what is protected in trusted ones too is none.
    """

    def __init__(self, files: PathPolicy) -> None:
        self._files = files
        self._calls: set[str] = set()

    @property
    def count(self) -> int:
        """The number of calls so far."""
        return len(self._calls)

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, ToolCallDecision):
            denied = event.verdict == Answer.DENY and not event.reason.startswith("rejected by")
            if denied and (_NEVER in event.reason or self._are_ours(event.writes)):
                self._calls.add(event.call_id)
        elif (
            isinstance(event, ToolCallEnd)
            and event.failure == "sandbox_denied"
            and self._are_ours(_BLOCKED.findall(event.output))
        ):
            self._calls.add(event.call_id)

    def _are_ours(self, paths: Sequence[str]) -> bool:
        return bool(paths) and all(map(self._is_ours, paths))

    def _is_ours(self, path: str) -> bool:
        path = os.path.normpath(path)
        return inside(path, self._files.workspace) and not self._files.protected_rule(path)

    @property
    def sentence(self) -> str:
        """The last line of a run; empty where nothing was denied for that reason."""
        if not self._calls:
            return ""
        calls = "1 call was" if self.count == 1 else f"{self.count} calls were"
        return f"{calls} denied: this folder is not trusted {WAY}"
