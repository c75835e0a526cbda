"""`toolrest mcp`: other servers' tools for this agent, and this agent's tools for others."""

from __future__ import annotations

import click

from toolrest.cli.app import Lazy

SUBCOMMANDS = {
    "add": ("toolrest.cli.servers.mcp_edit", "Write a server into your settings."),
    "approve": (
        "toolrest.cli.servers.mcp_show",
        "See what changed about a server, and approve it.",
    ),
    "get": ("toolrest.cli.servers.mcp_show", "Show one server's settings."),
    "list": ("toolrest.cli.servers.mcp_show", "Start every server and say how it stands."),
    "login": ("toolrest.cli.servers.mcp_login", "Log in to a server over HTTP."),
    "logout": ("toolrest.cli.servers.mcp_login", "Forget a server's tokens."),
    "remove": ("toolrest.cli.servers.mcp_edit", "Take a server out of your settings."),
    "test": ("toolrest.cli.servers.mcp_show", "Start one server and show all that it offers."),
    "serve": ("toolrest.cli.servers.mcp_serve", "Offer Toolrest's tools to an MCP client."),
}


@click.group("mcp", cls=Lazy, known=SUBCOMMANDS)
def command() -> None:
    """Model Context Protocol, both ways.

    \b
    toolrest mcp serve -C ~/project
    toolrest mcp add time -- uvx mcp-server-time
    toolrest mcp list
    """
