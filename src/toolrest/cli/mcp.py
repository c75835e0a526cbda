"""`toolrest mcp`: other servers' tools for this agent, and this agent's tools for others."""

from __future__ import annotations

from importlib import import_module

import click

SUBCOMMANDS = {
    "add": ("toolrest.cli.mcp_edit", "Write a server into your settings."),
    "approve": ("toolrest.cli.mcp_show", "See what changed about a server, and approve it."),
    "get": ("toolrest.cli.mcp_show", "Show one server's settings."),
    "list": ("toolrest.cli.mcp_show", "Start every server and say how it stands."),
    "login": ("toolrest.cli.mcp_login", "Log in to a server over HTTP."),
    "logout": ("toolrest.cli.mcp_login", "Forget a server's tokens."),
    "remove": ("toolrest.cli.mcp_edit", "Take a server out of your settings."),
    "test": ("toolrest.cli.mcp_show", "Start one server and show all that it offers."),
    "serve": ("toolrest.cli.mcp_serve", "Offer Toolrest's tools to an MCP client."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module, _ = SUBCOMMANDS[cmd_name]
        found: click.Command = getattr(import_module(module), f"{cmd_name}_command", None) or (
            import_module(module).command
        )
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUBCOMMANDS[name][1]) for name in sorted(SUBCOMMANDS)])


@click.group("mcp", cls=_Lazy)
def command() -> None:
    """Model Context Protocol, both ways.

    \b
    toolrest mcp serve -C ~/project
    toolrest mcp add time -- uvx mcp-server-time
    toolrest mcp list
    """
