"""What goes wrong with a server, in words that name it and say what to do."""

from __future__ import annotations

from toolrest.errors import ToolrestError


class McpError(ToolrestError):
    """A server cannot be used, or did not do what it was asked."""


class McpUnavailable(McpError):
    """There is no connection to the server, and the message says why."""


class McpTimeout(McpError):
    """The server did not answer in time; it was told that nobody waits any more."""


class McpRefused(McpError):
    """The server answered with a protocol error."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
