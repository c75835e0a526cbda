"""What do sandbox and limits leave open here? Said with the first result that it concerns."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from toolrest.process.limits import Limits

if TYPE_CHECKING:
    from toolrest.sandbox.confine import Confined

_IN_CONTAINER = "limits: not applied to containers; use sandbox.run_args (--memory, --pids-limit)"


class Gaps:
    """Remembers what the session's results have said already."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._said: set[str] = set()

    def news(self, confined: Confined, taken: Collection[str]) -> tuple[str, ...]:
        """What is not enforced for this command and was not said before.

        `taken` are the limits that the session's control group holds.
        """
        found = [
            f"the {confined.backend} sandbox does not enforce {name}: {answer.note}"
            for name, answer in confined.controls.items()
            if answer.level == "none"
        ]
        if self._limits:
            docker = confined.backend == "docker"
            found += [_IN_CONTAINER] if docker else self._limits.unmet(taken)
        fresh = tuple(words for words in found if words not in self._said)
        self._said.update(fresh)
        return fresh
