"""Does a session have MCP servers at all? Without any, nothing of them is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolrest.agent.mcp_session import McpSession
    from toolrest.config import Config
    from toolrest.gate.context import Services
    from toolrest.gate.registry import Registry

_FILES = (".mcp.json", "mcp.json")


def mcp_session(
    config: Config, services: Services, registry: Registry, environ: Mapping[str, str]
) -> McpSession | None:
    """The session's servers, or None; `ctx.mcp` works either way."""
    workspace = services.files.workspace
    brought = any(os.path.lexists(os.path.join(workspace, name)) for name in _FILES)
    if not config.value.mcp_servers and not brought:
        services.make_mcp = _no_servers
        return None
    from toolrest.agent.mcp_session import McpSession
    from toolrest.mcp.servers import configured

    session = McpSession(
        config, configured(config, environ, workspace), services, registry, environ
    )
    services.mcp = session.pool
    return session


def _no_servers() -> Any:
    from toolrest.mcp.pool import Pool
    from toolrest.mcp.wires import Host
    from toolrest.process.owner import Owner

    async def never(_server: object) -> Any:
        raise NotImplementedError

    return Pool((), Host(never, Owner))
