"""What every backend offers to a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from toolrest.records import dataclass
from toolrest.process.command import Command


def _nothing() -> None:
    """Nothing is left behind."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A confined command, what to call when its tree has ended, and what ends it for sure."""

    command: Command
    release: Callable[[], None] = _nothing
    stop: tuple[str, ...] = ()


class Engine(Protocol):
    """Confines command after command, for one policy."""

    name: str

    def confine(self, command: Command, *, late: bool = False) -> Prepared:
        """The same command, confined; with `late`, some of the work may be left to its `ready`."""
        ...
