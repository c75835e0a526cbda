"""`toolrest acp`: the agent for editors, over the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from toolrest.agent.history.stored_sessions import find_session
from toolrest.agent.open_session import open_session
from toolrest.cli.options import Choices, session_options
from toolrest.config.files import toolrest_home
from toolrest.config.keys import format_key
from toolrest.errors import ConfigError
from toolrest.policy.terminal_safe import display_safe

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.config import Config
    from toolrest.serve.acp.agent import EditorAgent, SessionRequest


@click.command("acp")
@session_options
def command(choices: Choices) -> None:
    """Serve an editor as its agent, over standard input and output.

    The editor starts this command, opens sessions in folders of its choice and sends prompts.
    Settings are those of each folder, as with exec; approvals are asked in the editor.

    \b
    Zed: "agent_servers": {"Toolrest": {"command": "toolrest", "args": ["acp"]}}
    """
    from toolrest.serve.stdio import can_talk, editor_over_stdio

    agent = editor_agent(choices)
    for number, name in ((0, "input"), (1, "output")):
        if not can_talk(number):
            raise click.UsageError(f"standard {name} is no pipe or terminal: an editor starts this")
    asyncio.run(editor_over_stdio(agent))


def editor_agent(choices: Choices) -> EditorAgent:
    """The agent for an editor, with the user's settings and these options."""
    # An extra, which takes half a second to load.
    from toolrest.serve.acp.agent import EditorAgent

    home = toolrest_home(None, os.environ)
    return EditorAgent(lambda opening: _open(choices, opening), home=home, takes_all=True)


def _open(choices: Choices, opening: SessionRequest) -> Conversation:
    config = load_for_editor(choices, opening)
    resume = find_session(config.home, opening.resume).path if opening.resume else None
    # An editor opens whatever was cloned: its AGENTS.md counts once the user trusts the folder.
    session = open_session(
        config, resume=resume, on_ask=opening.on_ask, source="acp", trusted=config.trusted
    )
    for problem in session.rest.warnings:
        click.echo(f"toolrest: {problem}", err=True)
    return session


def load_for_editor(choices: Choices, opening: SessionRequest) -> Config:
    """The settings of a session, with the folders and MCP servers that the editor passes on."""
    choices = replace(choices, folder=opening.cwd)
    rows = _server_rows(opening)
    # A row of the user's, with its tokens and approvals, is never mixed with one of the editor's.
    taken = choices.load().value.mcp_servers if rows else {}
    for name in list(rows):
        # With __ in its name its tools would pass for those of another server.
        if name in taken or "__" in name:
            del rows[name]
            why = "you have a server of that name" if name in taken else "a name may not hold __"
            text = display_safe(f"the editor's MCP server {name} is left out; {why}")
            click.echo(f"toolrest: {text}", err=True)
    chosen: dict[str, Any] = {format_key(("mcp_servers", name)): row for name, row in rows.items()}
    if opening.folders:
        chosen["sandbox_workspace_write.writable_roots"] = list(opening.folders)
    config = choices.load(chosen)
    config.editor_servers = frozenset(rows)
    return config


def _server_rows(opening: SessionRequest) -> dict[str, dict[str, Any]]:
    """The settings of the MCP servers that the editor passes on, by name."""
    rows: dict[str, dict[str, Any]] = {}
    for server in opening.servers:
        kind = getattr(server, "type", "stdio")
        row: dict[str, Any]
        if kind == "stdio":
            row = {"command": server.command, "args": list(server.args)}
            row["env"] = {variable.name: variable.value for variable in server.env}
        elif kind in ("http", "sse"):
            headers = {header.name: header.value for header in server.headers}
            row = {"type": kind, "url": server.url, "http_headers": headers}
        else:
            raise ConfigError(f"the MCP server {server.name} is of an unknown kind: {kind}")
        rows[server.name] = row
    return rows
