"""The MCP servers of a session: the user's, an editor's, and those of a trusted `.mcp.json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.config.keys import looks_secret
from toolrest.config.secrets import key_variables
from toolrest.errors import ConfigError
from toolrest.mcp.errors import McpError
from toolrest.mcp.json_files import expand, project_servers, variables_in
from toolrest.private_files import project_has
from toolrest.urls import parse_url

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.config.schema.mcp import McpServer

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Origin: TypeAlias = Literal["user", "project", "editor"]
_LONGEST_NAME = 64


class Server(Struct, frozen=True):
    """A configured server, ready to be started or reached. `row` has its settings as written.

    `problem` is the reason why it can never be used as configured.
    """

    name: str
    row: McpServer
    origin: Origin
    file: str
    transport: Transport = "stdio"
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    oauth_secret: str | None = None
    """The secret of a client that is registered for its login."""
    problem: str | None = None

    @property
    def target(self) -> str:
        """The command or URL as written, variables unexpanded."""
        return self.row.url or " ".join((self.row.command or "", *self.row.args))

    @property
    def host(self) -> str | None:
        """The host that a server over HTTP is reached at."""
        return parse_url(self.url).host if self.url else None

    @property
    def port(self) -> int:
        """The port that a server over HTTP is reached at."""
        return parse_url(self.url).port if self.url else 443

    def offers(self, tool: str) -> bool:
        """Whether `enabled_tools` and `disabled_tools` leave a tool; the latter wins."""
        if any(fnmatchcase(tool, pattern) for pattern in self.row.disabled_tools):
            return False
        enabled = self.row.enabled_tools
        return enabled is None or any(fnmatchcase(tool, pattern) for pattern in enabled)

    def secrets(self) -> dict[str, str]:
        """Secret values that it is given, variables expanded, by a name for each."""
        login = {"oauth_client_secret": self.oauth_secret} if self.oauth_secret else {}
        return {
            f"{self.name}.{name}": value.removeprefix("Bearer ")
            for name, value in (*self.env.items(), *self.headers.items(), *login.items())
            if looks_secret((name,))
        }


class Configured(Struct):
    """The servers by name, and warnings about those left out."""

    servers: dict[str, Server]
    warnings: list[str] = field(default_factory=list)


def no_server(name: str) -> ConfigError:
    """The error for a name that no server has."""
    return ConfigError(
        f"there is no MCP server {name!r} here", hints=("`toolrest mcp list` has them all.",)
    )


def configured(config: Config, environ: Mapping[str, str], workspace: str) -> Configured:
    """Every server that is switched on, the user's own before those of the folder."""
    rows: dict[str, tuple[McpServer, Origin, str]] = {
        name: (row, "editor", f"the editor in {workspace}")
        if name in config.editor_servers
        else (row, "user", config.file)
        for name, row in config.value.mcp_servers.items()
    }
    found = Configured({})
    if _may_have_file(workspace):
        for name, row, file in project_servers(workspace, config.trusted, found.warnings):
            if name in rows:
                found.warnings.append(f"{file}: {name} is left out; you have a server of that name")
            elif "__" in name:
                # Its tools would pass for those of the server before the underscores.
                found.warnings.append(f"{file}: {name} is left out; a name may not hold __")
            else:
                rows[name] = (row, "project", file)
    _choose(rows, config.value.active_mcp_servers, found.warnings)
    keys = frozenset(key_variables(config.value))
    for name, (row, origin, file) in sorted(rows.items()):
        if row.enabled:
            server = resolve(name, row, origin, file, environ)
            paying = _uses(row) & keys if origin != "user" else frozenset()
            found.servers[name] = (
                replace(server, problem=_PAYS.format(*paying)) if paying else server
            )
    return found


_PAYS = "{0} holds the key of a model provider of yours, which only your own servers are given"


def _uses(row: McpServer) -> frozenset[str]:
    """The user's variables that a row of a project's file or an editor passes on."""
    headers = (*row.headers.values(), *row.http_headers.values())
    texts = (row.command, row.cwd, row.url, *row.args, *row.env.values(), *headers)
    return frozenset(name for text in texts if text for name in variables_in(text))


def _may_have_file(workspace: str) -> bool:
    return any(project_has(os.path.join(workspace, name)) for name in (".mcp.json", "mcp.json"))


def _choose(
    rows: dict[str, tuple[McpServer, Origin, str]],
    active: tuple[str, ...] | None,
    warnings: list[str],
) -> None:
    if active is None:
        return
    for name in active:
        if name not in rows:
            warnings.append(f"active_mcp_servers names {name}, but there is no such server")
    for name in [name for name in rows if name not in active]:
        del rows[name]


def resolve(
    name: str, row: McpServer, origin: Origin, file: str, environ: Mapping[str, str]
) -> Server:
    """A server from its settings; an error in them becomes its `problem`."""
    server = Server(name, row, origin, file)
    try:
        _check(name, row)
        if row.url is None:
            return _program(server, environ)
        return _address(server, environ)
    except McpError as error:
        return replace(server, problem=str(error))


def _check(name: str, row: McpServer) -> None:
    where = f"mcp_servers.{name}"
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise McpError(f"{where}: a name has 1 to {_LONGEST_NAME} printable characters")
    if row.command is None and row.url is None:
        raise McpError(f"{where} has neither command nor url; give one of them")
    if row.command is not None and row.url is not None:
        raise McpError(f"{where} has both command and url; keep one of them")
    if row.type is not None and (row.type == "stdio") != (row.url is None):
        kind = "a command" if row.type == "stdio" else "a url"
        raise McpError(f'{where}: type = "{row.type}" goes with {kind}')


def _program(server: Server, environ: Mapping[str, str]) -> Server:
    row, where = server.row, f"mcp_servers.{server.name}"
    command = expand(row.command or "", environ, f"{where}.command")
    args = [expand(arg, environ, f"{where}.args") for arg in row.args]
    env = {name: environ[name] for name in row.env_vars if name in environ}
    for name, value in row.env.items():
        env[name] = expand(value, environ, f"{where}.env.{name}")
    cwd = expand(row.cwd, environ, f"{where}.cwd") if row.cwd else None
    if cwd is not None:
        cwd = os.path.expanduser(cwd)
    return replace(server, argv=(os.path.expanduser(command), *args), env=env, cwd=cwd)


def _address(server: Server, environ: Mapping[str, str]) -> Server:
    row, where = server.row, f"mcp_servers.{server.name}"
    url = expand(row.url or "", environ, f"{where}.url")
    try:
        parse_url(url)
    except ValueError as error:
        raise McpError(
            f"{where}.url: {error}; write it as http://HOST:PORT/PATH or https://HOST/PATH"
        ) from None
    headers = {
        name: expand(value, environ, f"{where}.headers.{name}")
        for name, value in (row.headers | row.http_headers).items()
    }
    for name, variable in row.env_http_headers.items():
        if environ.get(variable):
            headers[name] = expand(f"${{{variable}}}", environ, f"{where}.env_http_headers")
    bearer = row.bearer_token_env_var
    if bearer is not None and "authorization" not in {name.lower() for name in headers}:
        token = expand(f"${{{bearer}}}", environ, f"{where}.bearer_token_env_var")
        headers["Authorization"] = f"Bearer {token}"
    transport: Transport = "sse" if row.type == "sse" else "http"
    secret = environ.get(row.oauth_client_secret_env_var or "")
    return replace(server, transport=transport, url=url, headers=headers, oauth_secret=secret)
