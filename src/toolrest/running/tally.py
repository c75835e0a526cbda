"""How many commands were run; sessions that are one to the user share the count."""

from __future__ import annotations


class CommandCount:
    """A count that several sessions add to."""

    __slots__ = ("commands",)

    def __init__(self, commands: int = 0) -> None:
        self.commands = commands
