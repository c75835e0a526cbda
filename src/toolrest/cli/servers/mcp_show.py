"""`toolrest mcp list`, `get` and `test`: the configured servers, and their state."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from toolrest.agent.mcp.trust import CHANGED, FOLDER, START, pins_in
from toolrest.cli.options import Choices, session_options
from toolrest.cli.terminal.approve import TerminalApprover
from toolrest.cli.terminal.progress import progress, waiting_for_servers
from toolrest.cli.terminal.terminal import Terminal, is_terminal
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.mcp.servers import Server, configured, no_server
from toolrest.policy.terminal_safe import display_safe
from toolrest.wire.items.encode import dumps

if TYPE_CHECKING:
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.mcp.connection import Connection, Status


@click.command("list")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(choices: Choices, as_json: bool) -> None:
    """Start every server as a session would, and print the status of each.

    Exit code 1 when one of them failed.
    """
    rows = [connection.status() for connection in asyncio.run(_settled(choices, None))]
    if as_json:
        click.echo(dumps([_as_json(row) for row in rows]))
    elif not rows:
        click.echo("no MCP servers are configured; see: toolrest mcp add --help")
    else:
        _print_table(rows)
    sys.exit(1 if any(row.state == "failed" for row in rows) else 0)


@click.command("test")
@session_options
@click.argument("name")
def test_command(choices: Choices, name: str) -> None:
    """Start the server NAME and show its tools, in full."""
    found = asyncio.run(_settled(choices, name))
    if not found:
        raise no_server(name)
    connection = found[0]
    if connection.state == "failed" or not connection.listed:
        click.echo(f"{name}: {connection.state}: {_safe(connection.reason)}", err=True)
        sys.exit(1)
    info = connection.info
    who = _safe(f"{info.get('name', '?')} {info.get('version', '')}".rstrip())
    click.echo(f"{name}: ready; {who}")
    for tool in sorted(connection.definitions.values(), key=lambda each: each.name):
        click.echo(f"\n{_safe(tool.name)}\n  {_safe(tool.description) or '(no description)'}")
        for parameter in tool.input_schema.get("properties") or ():
            click.echo(f"    {_safe(str(parameter))}")
    for tool_name, why in connection.rejected.items():
        click.echo(f"\n{_safe(tool_name)}\n  set aside: {_safe(why)}")


@click.command("get")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("name")
def get_command(choices: Choices, name: str, as_json: bool) -> None:
    """Show the settings of the server NAME; values of variables and headers are not shown."""
    config = choices.load()
    found = configured(config, os.environ, config.workspace or os.getcwd()).servers
    server = found.get(name)
    if server is None:
        raise no_server(name)
    facts = _facts(server)
    if folders := pins_in(config.home).folders(server):
        facts["approved_folders"] = [f"{folder} ({how})" for folder, how in folders.items()]
    if as_json:
        click.echo(dumps(facts))
        return
    for key, value in facts.items():
        click.echo(f"{key} = {_safe(str(value))}")


def _facts(server: Server) -> dict[str, Any]:
    row = server.row
    facts = {
        "name": server.name,
        "from": server.file,
        **{
            key: list(value) if isinstance(value, tuple) else value
            for key, value in row.as_dict(set_only=True).items()
            if key not in ("env", "headers", "http_headers", "tools")
        },
    }
    for key in ("env", "headers", "http_headers"):
        if names := getattr(row, key):
            facts[key] = dict.fromkeys(names, "(hidden)")
    if row.tools:
        facts["tools"] = {name: tool.approval_mode for name, tool in row.tools.items()}
    if server.problem is not None:
        facts["problem"] = server.problem
    return facts


async def _settled(
    choices: Choices, name: str | None, asker: OnAsk | None = None
) -> list[Connection]:
    """The connections to all servers (or one), each ready or failed; by now closed again."""
    terminal = _terminal()
    rest = choices.open(asker or _asker(terminal))
    # Not entered: that would also start the servers that were not named, and ask about them.
    try:
        pool = rest.mcp
        names = [] if pool is None else [n for n in pool.connections if name in (None, n)]
        if pool is None or not names:
            return []
        busy = terminal.lock.locked if terminal is not None else lambda: False
        with progress(waiting_for_servers(pool.connections, sorted(names), busy)):
            await rest.wait_for_mcp(*names)
        return [pool.connections[each] for each in sorted(names)]
    finally:
        await rest.aclose()


def _print_table(rows: list[Status]) -> None:
    width = max(len(row.name) for row in rows)
    for row in rows:
        what = f"{len(row.tools)} tools" if row.state == "ready" else row.reason
        aside = f", {len(row.rejected)} set aside" if row.rejected else ""
        click.echo(
            f"{row.name:<{width}}  {row.state:<8}  {_safe(what)}{aside}  [{_safe(row.target)}]"
        )
        for tool, why in row.rejected.items():
            click.echo(f"{'':<{width}}  set aside: {_safe(tool)}: {_safe(why)}")


def _as_json(row: Status) -> dict[str, Any]:
    return {
        "name": row.name,
        "state": row.state,
        "reason": row.reason,
        "transport": row.transport,
        "tools": list(row.tools),
        "rejected": dict(row.rejected),
    }


def _safe(text: str) -> str:
    return display_safe(text, keep_newlines=True)


def _terminal() -> Terminal | None:
    return Terminal() if is_terminal() else None


def _asker(terminal: Terminal | None) -> OnAsk | None:
    if terminal is None:
        return None
    return TerminalApprover(terminal)


@click.command("approve")
@session_options
@click.option("--yes", is_flag=True, help="Approve without asking, and print it.")
@click.argument("name")
def approve_command(choices: Choices, name: str, yes: bool) -> None:
    """Show how the server NAME is started and what changed in its tools, and approve it."""

    def ask(request: ApprovalRequest) -> bool:
        if request.tool not in (START, CHANGED, FOLDER):
            return False  # the server has a question of its own already
        click.echo(request.reason, err=True)  # the asking side made it safe to show
        return yes or click.confirm("Approve?", default=False, err=True)

    found = asyncio.run(_settled(choices, name, ask))
    if not found:
        raise no_server(name)
    click.echo(_safe(found[0].status().line()))
    sys.exit(1 if found[0].state == "failed" else 0)
