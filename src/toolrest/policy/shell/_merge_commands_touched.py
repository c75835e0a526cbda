"""What was found out about the files and hosts that a command touches."""

from __future__ import annotations

from toolrest.records import dataclass, field
from toolrest.policy.shell.script import Simple
from toolrest.policy.shell.place import Place


@dataclass(slots=True)
class Touch:
    """Absolute paths and host names; `sure` when that is all the command does."""

    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    connects: list[str] = field(default_factory=list)
    sure: bool = False


def paths_of(simple: Simple, index: int, place: Place, touch: Touch, into: list[str]) -> None:
    """Add the paths that a word names; a word that names none leaves the touch unsure."""
    paths = place.paths(simple.argv[index], simple.mark(index))
    if not paths:
        touch.sure = False
    into.extend(paths)
