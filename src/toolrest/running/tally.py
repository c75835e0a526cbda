"""The count of commands run, shared by a session and its sub-agents."""

from __future__ import annotations

from toolrest.errors import Rejected


class CommandCount:
    """A count that several sessions add to."""

    __slots__ = ("commands",)

    def __init__(self, commands: int = 0) -> None:
        self.commands = commands

    def add(self, most: int | None) -> None:
        """Count a command; past the session's limit the error for the model names the setting."""
        self.commands += 1
        if most is not None and self.commands > most:
            raise Rejected(
                f"not run: this session may run {most} commands "
                "(tool_security.max_shell_commands_per_session)"
            )
