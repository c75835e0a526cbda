"""`toolrest acp`: the agent for editors, over the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from toolrest.agent.history.stored_sessions import find_session
from toolrest.agent.open_session import open_session
from toolrest.agent.setup.tools import add_user_tools
from toolrest.cli.options import Choices, session_options
from toolrest.config.files import toolrest_home
from toolrest.config.keys import format_key
from toolrest.errors import ConfigError

if TYPE_CHECKING:
    from toolrest.agent.conversation.session import AgentSession
    from toolrest.serve.acp.agent import EditorAgent, SessionRequest


@click.command("acp")
@session_options
def command(choices: Choices) -> None:
    """Be the agent of an editor, over standard input and output.

    The editor starts this command, opens sessions in folders of its choice and sends prompts.
    Settings are those of each folder, as with exec; approvals are asked in the editor.

    \b
    Zed: "agent_servers": {"Toolrest": {"command": "toolrest", "args": ["acp"]}}
    """
    from toolrest.serve.stdio import editor_over_stdio

    agent = editor_agent(choices)
    for number, name in ((0, "input"), (1, "output")):
        if not _can_talk(number):
            raise click.UsageError(f"standard {name} is no pipe or terminal: an editor starts this")
    asyncio.run(editor_over_stdio(agent))


def editor_agent(choices: Choices) -> EditorAgent:
    """The agent for an editor, with the user's settings and these options."""
    # An extra, which takes half a second to load.
    from toolrest.serve.acp.agent import EditorAgent

    home = toolrest_home(None, os.environ)
    return EditorAgent(lambda opening: _open(choices, opening), home=home, takes_all=True)


def _can_talk(descriptor: int) -> bool:
    """Whether it is a pipe, socket or terminal: files and /dev/null cannot be waited for."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def _open(choices: Choices, opening: SessionRequest) -> AgentSession:
    config = replace(choices, folder=opening.cwd).load(_chosen(opening))
    resume = find_session(config.home, opening.resume).path if opening.resume else None
    # An editor opens whatever was cloned: its AGENTS.md counts once the user trusts the folder.
    session = open_session(
        config, resume=resume, on_ask=opening.on_ask, source="acp", trusted=config.trusted
    )
    for problem in add_user_tools(session.rest):
        click.echo(f"toolrest: {problem}", err=True)
    return session


def _chosen(opening: SessionRequest) -> dict[str, Any]:
    """What the editor chose for a session: more folders, and MCP servers of its own."""
    chosen: dict[str, Any] = {}
    if opening.folders:
        chosen["sandbox_workspace_write.writable_roots"] = list(opening.folders)
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
        chosen[format_key(("mcp_servers", server.name))] = row
    return chosen
