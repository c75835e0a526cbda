"""The commands that `exec_command` left running: their output so far, the line typed into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolrest.gate.output.collector import Collector


class OpenCommand(Struct):
    """One command that still runs, or was not polled to its end."""

    output: Collector | None = None
    line: str = ""
    """The beginning of a line that was typed, and not ended yet."""


class OpenCommands:
    """The open commands of one session, by their session ids."""

    def __init__(self) -> None:
        self._known: dict[int, OpenCommand] = {}

    def add(self, session_id: int, output: Collector, running: Iterable[int]) -> None:
        """Add a command, and drop those that are gone."""
        alive = set(running)
        self._known = {key: value for key, value in self._known.items() if key in alive}
        self._known[session_id] = OpenCommand(output)

    def get(self, session_id: int) -> OpenCommand:
        """The command; an empty one where it is not known."""
        return self._known.get(session_id) or OpenCommand()
