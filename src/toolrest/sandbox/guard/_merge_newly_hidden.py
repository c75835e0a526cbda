"""Which files have come since the session began that no command may read?

All roots were searched for `.env*` and the like at the start, which is too slow to do again for
every command. Where such a file appears later is mostly right in a root, or beside another one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from toolrest.policy.paths.names import unique
from toolrest.sandbox.errors import unseen
from toolrest.sandbox.policy import SandboxPolicy

_MOST_FOLDERS = 32


class NewlyHidden:
    """Looks into a few folders before each command."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self._known = frozenset(policy.hidden)
        beside = (os.path.dirname(path) for path in policy.hidden if policy.in_root(path))
        folders = unique((*policy.roots, policy.workspace, *beside))[:_MOST_FOLDERS]
        tests = [(folder, policy.hides(folder)) for folder in folders] if policy.hides else []
        self._tests = [(folder, test) for folder, test in tests if test is not None]

    def look(self, ours: Collection[str]) -> tuple[str, ...]:
        """The hidden files that were not there at the start; `ours` are placeholders."""
        return tuple(sorted(set(self._found()).difference(self._known, ours)))

    def _found(self) -> Iterator[str]:
        for folder, hidden in self._tests:
            try:
                names = os.listdir(folder)
            except PermissionError as error:
                raise unseen(folder) from error  # a command may have closed it
            except OSError:
                continue
            for name in names:
                if hidden(name):
                    yield os.path.join(folder, name)
