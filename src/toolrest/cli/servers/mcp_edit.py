"""`toolrest mcp add` and `remove`: servers in the user's settings file."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from toolrest.agent.mcp.trust import pins_in, record_of
from toolrest.agent.path_policy import default_workspace, path_policy
from toolrest.config.files import config_file, read_toml, toolrest_home
from toolrest.config.loader import load
from toolrest.config.schema.mcp import McpServer
from toolrest.config.schema.validate import check_table
from toolrest.config.write import edit_user_file
from toolrest.mcp.errors import McpError
from toolrest.mcp.launch import command_of
from toolrest.mcp.servers import Server, resolve

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.policy.paths.policy import PathPolicy


@click.command("add", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND ARGS...]")
@click.option("--url", help="The address of an HTTP server, instead of a command.")
@click.option("--sse", is_flag=True, help="The server uses the older SSE transport.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="K=V",
    help="Set a variable of the server. Repeatable.",
)
@click.option(
    "--env-var",
    "passed",
    multiple=True,
    metavar="K",
    help="Let the server have this variable of yours. Repeatable.",
)
@click.option(
    "--bearer-token-env-var",
    "bearer",
    metavar="K",
    help="The variable that holds the bearer token.",
)
@click.option("--force", is_flag=True, help="Replace a server of that name.")
def add_command(
    name: str,
    argv: tuple[str, ...],
    url: str | None,
    sse: bool,
    variables: tuple[str, ...],
    passed: tuple[str, ...],
    bearer: str | None,
    force: bool,
) -> None:
    """Write the server NAME into your settings: a COMMAND after --, or a --url.

    Typing this is the approval: the server is pinned as it is now, and every session from now on
    starts it. A start that differs from the pin is asked about.

    \b
    toolrest mcp add git -- uvx mcp-server-git
    toolrest mcp add api --env-var API_TOKEN -- node server.js
    toolrest mcp add docs --url https://example.com/mcp
    """
    if re.fullmatch(r"[A-Za-z0-9_.-]+", name) is None:
        raise click.UsageError(f"the name {name!r} may have letters, digits, `-`, `_` and `.` only")
    if (url is None) == (not argv):
        raise click.UsageError("give either a command after -- or --url")
    row: dict[str, Any] = {"url": url} if url else {"command": argv[0]}
    if len(argv) > 1:
        row["args"] = list(argv[1:])
    if sse:
        row["type"] = "sse"
    if variables:
        row["env"] = dict(_pair(item) for item in variables)
    if passed:
        row["env_vars"] = list(passed)
    if bearer:
        row["bearer_token_env_var"] = bearer
    home = toolrest_home(None, os.environ)
    if name in _stored(home) and not force:
        raise click.UsageError(f"there already is a server {name!r}; --force replaces it")
    server = _checked(name, row, home)
    file = edit_user_file(home, ("mcp_servers", name), row)
    config = load(surface="cli", workspace=default_workspace(None))
    files = path_policy(config, default_workspace(None))
    pins = pins_in(home)
    pins.remove(server)  # with the folders of the one that it replaces
    pins.put_launch(server, record_of(server, files, os.environ))
    _activate(home, name, config)
    if problem := _missing(server, files):
        click.echo(f"toolrest: {name} cannot be started yet: {problem}", err=True)
    click.echo(f"{name} is in {file}; try it: toolrest mcp test {name}")


@click.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Take the server NAME out of your settings, and forget that it was approved."""
    home = toolrest_home(None, os.environ)
    row = _stored(home).get(name)
    if row is None:
        raise click.UsageError(f"there is no server {name!r} in your settings")
    file = edit_user_file(home, ("mcp_servers", name), None)
    pins_in(home).remove(_resolved(name, row, home))
    active = (read_toml(config_file(home)) or {}).get("active_mcp_servers")
    if isinstance(active, list) and name in active:
        left = [each for each in active if each != name]
        edit_user_file(home, ("active_mcp_servers",), left)
    click.echo(f"{name} was removed from {file}")


def _activate(home: str, name: str, config: Config) -> None:
    """Add the server to `active_mcp_servers`, where that names the ones that start."""
    active = config.value.active_mcp_servers
    if active is None or name in active:
        return
    edit_user_file(home, ("active_mcp_servers",), [*active, name])
    click.echo(f"active_mcp_servers names {name}, too")


def _missing(server: Server, files: PathPolicy) -> str:
    """Why the server's program cannot be started; empty when it can."""
    if not server.argv:
        return ""
    roots = files.writable_roots if files.mode == "workspace-write" else ()
    try:
        command_of(server, files.workspace, os.environ, roots)
    except McpError as error:
        return str(error)
    return ""


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--env takes NAME=VALUE, not {item!r}")
    return name, value


def _stored(home: str) -> dict[str, Any]:
    servers = (read_toml(config_file(home)) or {}).get("mcp_servers", {})
    return servers if isinstance(servers, dict) else {}


def _checked(name: str, row: dict[str, Any], home: str) -> Server:
    server = _resolved(name, row, home)
    if server.problem is not None and "not set" not in server.problem:
        raise click.UsageError(server.problem)
    return server


def _resolved(name: str, row: dict[str, Any], home: str) -> Server:
    return resolve(name, check_table(McpServer, row), "user", config_file(home), os.environ)
