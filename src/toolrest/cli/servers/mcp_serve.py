"""`toolrest mcp serve`: this session's tools for any MCP client."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from toolrest.agent.rest import Toolrest
from toolrest.cli.options import Choices, session_options
from toolrest.cli.terminal.notices import print_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.serve.server import ToolServer


@click.command("serve")
@session_options
@click.option(
    "--http", "address", metavar="HOST:PORT", help="Serve over HTTP instead of standard input."
)
@click.option(
    "--allow-host",
    "allowed",
    metavar="NAME",
    multiple=True,
    help="Another name (or NAME:PORT) by which clients reach this server. Repeatable.",
)
def command(choices: Choices, address: str | None, allowed: tuple[str, ...]) -> None:
    """Offer Toolrest's tools to an MCP client, with its approvals, sandbox, limits and audit.

    Without --http the client starts this command and speaks over standard input and output.
    With it, clients connect to http://HOST:PORT/mcp with a bearer token: the value of
    TOOLREST_MCP_TOKEN, or a new one that is written to a file named at the start. Requests for
    another host than HOST are refused; --allow-host adds names, which 0.0.0.0 needs.

    A call that needs approval is asked through the client if it can show questions
    (elicitation); otherwise on_ask decides, which denies unless you set it.

    \b
    toolrest mcp serve -C ~/project -s workspace-write
    toolrest mcp serve --http 127.0.0.1:8000
    """
    if allowed and address is None:
        raise click.UsageError("--allow-host is for --http")
    config = choices.load()
    if config.warnings:
        print_warnings(config)
    from toolrest.serve.server import ToolServer
    from toolrest.serve.stdio import tools_over_stdio

    if address is None and sys.stdin is not None and sys.stdin.isatty():
        click.echo(_at_a_terminal(config.workspace or os.getcwd()), err=True)
    tools = ToolServer(config, config.workspace or ".", _open)
    if address is None:
        asyncio.run(tools_over_stdio(tools))
    else:
        asyncio.run(_http(tools, config, address, allowed))


def _at_a_terminal(workspace: str) -> str:
    """What a person reads who typed this command."""
    line = shlex.join(("toolrest", "mcp", "serve", "-C", workspace))
    row = {"toolrest": {"command": "toolrest", "args": shlex.split(line)[1:]}}
    return (
        "toolrest: this is an MCP server on standard input and output, for a client to start; "
        "typed here it waits for JSON (Ctrl-D ends it).\n"
        f"  a client that has a command for it:  claude mcp add toolrest -- {line}\n"
        f"  one with a settings file:            {json.dumps({'mcpServers': row})}\n"
        "  over HTTP:                           toolrest mcp serve --http 127.0.0.1:8000"
    )


def _open(workspace: str, config: Config, on_ask: OnAsk) -> Toolrest:
    rest = Toolrest(workspace, config=config, on_ask=on_ask)
    for problem in rest.warnings:
        click.echo(f"toolrest: {problem}", err=True)
    return rest


async def _http(tools: ToolServer, config: Config, text: str, allowed: Sequence[str]) -> None:
    from toolrest.serve import http, listening

    host, port = http.address(text)
    http.check_names(host, allowed)
    token = http.token_from(os.environ)
    sock = listening.listen(host, port)
    port = sock.getsockname()[1]
    click.echo(f"toolrest: serving http://{host}:{port}{http.PATH}", err=True)
    if token is None:
        path = os.path.join(config.home, "run", f"mcp-{port}.token")
        token = http.new_token(path)
        click.echo(f"toolrest: the bearer token is in {path}", err=True)
    if not listening.is_loopback(host):
        click.echo("toolrest: this address can be reached from other machines", err=True)
    try:
        await listening.serve(http.application(tools, host, port, token, allowed), sock)
    finally:
        await tools.aclose()
