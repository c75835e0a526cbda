"""What MCP servers are given in confidence: values that must not be shown anywhere."""

from __future__ import annotations

from toolrest.config.keys import looks_secret
from toolrest.config.schema.settings import Settings


def server_variables(settings: Settings) -> tuple[str, ...]:
    """Names of variables that servers' tokens are read from."""
    names: dict[str, None] = {}
    for row in settings.mcp_servers.values():
        if row.bearer_token_env_var is not None:
            names[row.bearer_token_env_var] = None
        names.update(dict.fromkeys(row.env_http_headers.values()))
    return tuple(names)


def server_values(settings: Settings) -> dict[str, str]:
    """Secrets that are written into the settings themselves, under names that count as secret."""
    values: dict[str, str] = {}
    for server, row in settings.mcp_servers.items():
        for name, value in {**row.env, **row.headers, **row.http_headers}.items():
            if looks_secret((name,)) and "${" not in value:
                values[f"{server}_{name}_KEY"] = value.removeprefix("Bearer ")
    return values
