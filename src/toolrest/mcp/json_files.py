"""Servers of a folder's `.mcp.json` or `mcp.json`, in the format of other agents.

Also expands `${VAR}` and `${VAR:-default}` in a server's settings.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolrest.config.files import read_text
from toolrest.config.schema.mcp import McpServer
from toolrest.config.schema.table import TableError
from toolrest.config.schema.validate import check_table
from toolrest.config.secrets import PROVIDER_KEYS
from toolrest.errors import ConfigError
from toolrest.mcp.errors import McpError
from toolrest.private_files import project_has

FILES = (".mcp.json", "mcp.json")
# Approval, network and writable folders only the user may set, not a folder's file.
_TAKEN = ("type", "command", "args", "env", "cwd", "url", "headers")
_TYPES = {"streamable-http": "streamable_http", "streamableHttp": "streamable_http"}


def project_servers(
    folder: str, trusted: bool, warnings: list[str]
) -> Iterator[tuple[str, McpServer, str]]:
    """The servers of a folder's files, if it is trusted; errors become warnings."""
    for file in (os.path.join(folder, name) for name in FILES):
        if not project_has(file):
            continue
        if not trusted:
            warnings.append(
                f"{file} is ignored because the folder is not trusted; "
                f"read it, then run: toolrest trust {folder}"
            )
            continue
        try:
            yield from read_servers(file, warnings)
        except ConfigError as error:
            warnings.append(str(error))


def read_servers(file: str, warnings: list[str]) -> Iterator[tuple[str, McpServer, str]]:
    """The servers of one file; an invalid row is left out with a warning."""
    if os.path.realpath(file) != os.path.join(
        os.path.realpath(os.path.dirname(file)), os.path.basename(file)
    ):
        raise ConfigError(f"{file}: may not be reached through a symlink")
    table = _table(file)
    for name, raw in table.items():
        if not isinstance(raw, dict):
            warnings.append(f"{file}: mcpServers.{name} is not an object")
            continue
        if raw.get("disabled") is True:
            continue
        try:
            yield name, check_table(McpServer, _row(raw)), file
        except TableError as error:
            problem = error.problems[0]
            where = ".".join(map(str, problem.path))
            warnings.append(f"{file}: mcpServers.{name}.{where}: {problem}")


def _table(file: str) -> dict[str, Any]:
    text = read_text(file)
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid JSON: {error}") from None
    table = document.get("mcpServers", {}) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ConfigError(f'{file}: expected {{"mcpServers": {{NAME: {{...}}}}}}')
    return table


def _row(raw: dict[str, Any]) -> dict[str, Any]:
    row = {name: raw[name] for name in _TAKEN if raw.get(name) is not None}
    kind = row.get("type")
    if isinstance(kind, str):
        row["type"] = _TYPES.get(kind, kind)
    return row


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NEVER = frozenset(PROVIDER_KEYS)


def expand(text: str, environ: Mapping[str, str], where: str) -> str:
    """The text with its variables filled in; `where` is the setting that an error names."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name.upper() in _NEVER:
            raise McpError(
                f"{where} uses {name}, which pays for the model and is given to no server"
            )
        found = environ.get(name, "")
        if found:
            return found
        if default is not None:
            return default
        raise McpError(
            f"{where} needs the variable {name}, which is not set; set it, "
            f"or write ${{{name}:-default}}"
        )

    return _VARIABLE.sub(value, text)


def variables_in(text: str) -> tuple[str, ...]:
    """The names of the variables that are filled in, in order of appearance."""
    return tuple(dict.fromkeys(match[1] for match in _VARIABLE.finditer(text)))
