"""Errors of MCP servers; the message names the server and what to do."""

from __future__ import annotations

from toolrest.errors import ToolrestError


def approve_hint(server: str) -> str:
    """The hint where a server waits for a person's approval."""
    return f"`toolrest mcp approve {server}` shows and approves it."


class McpError(ToolrestError):
    """A server cannot be used, or did not do what it was asked."""


class McpUnavailable(McpError):
    """There is no connection to the server; the message is the reason."""


class McpLoginNeeded(McpUnavailable):
    """A session's login is not enough; `scopes` are those that a new one needs, if it is known."""

    def __init__(self, message: str, scopes: str) -> None:
        super().__init__(message)
        self.scopes = scopes


class McpTimeout(McpError):
    """The server did not answer in time; the request was cancelled."""


class McpRefused(McpError):
    """The server answered with a protocol error."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
