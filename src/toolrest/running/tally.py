"""The count of commands run, shared by a session and its sub-agents."""

from __future__ import annotations


class CommandCount:
    """A count that several sessions add to."""

    __slots__ = ("commands",)

    def __init__(self, commands: int = 0) -> None:
        self.commands = commands
