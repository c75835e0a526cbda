"""Which names of one writable root must not be free while a command runs?"""

from __future__ import annotations

import os
from typing import NamedTuple

from toolrest.lazy_dataclass import dataclass, field
from toolrest.sandbox.gitdirs import GitPlan
from toolrest.sandbox.missing import at_depth, at_top


class Wanted(NamedTuple):
    """Names in one folder that must not be free, with what stands for each."""

    missing: dict[str, bytes | None]
    there: dict[str, bytes | None]
    """As far as known; where one is gone after all, its stand-in comes."""


@dataclass(slots=True)
class Root:
    """One writable root: its git folders and the placeholders for what is missing."""

    path: str
    git: GitPlan = field(default_factory=GitPlan)
    git_identity: tuple[int, int] | None = None
    protected: tuple[str, ...] = ()
    top: dict[str, bytes | None] = field(default_factory=dict)
    """The protected names right in it and git's, with what stands for one that is missing."""
    deeper: tuple[str, ...] = ()
    known: dict[str, Wanted] = field(default_factory=dict)

    def protect(self, paths: tuple[str, ...]) -> None:
        """Keep these names as they are, there or not."""
        self.protected = paths
        self.top, self.deeper = at_top(paths, self.path)
        self.top |= self.git.there
        missing = {**dict.fromkeys(self.git.missing_folders), **self.git.missing_files}
        self.known = _by_folder(missing, self.top)

    def wanted(self) -> dict[str, Wanted]:
        """What to take before a command, by the folder that it is in."""
        if not self.deeper:
            return self.known
        missing, there = at_depth(self.deeper, self.path)
        for wanted in self.known.values():
            missing |= wanted.missing
            there |= wanted.there
        return _by_folder(missing, there)


def _by_folder(
    missing: dict[str, bytes | None], there: dict[str, bytes | None]
) -> dict[str, Wanted]:
    found: dict[str, Wanted] = {}
    for index, names in enumerate((missing, there)):
        for path, content in names.items():
            wanted = found.setdefault(os.path.dirname(path), Wanted({}, {}))
            wanted[index][path] = content
    return found
