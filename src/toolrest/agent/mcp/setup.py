"""Set-up of a session's MCP servers; their code is loaded when it is needed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from toolrest.gate.session import Lazy
from toolrest.private_files import project_has

if TYPE_CHECKING:
    from toolrest.agent.mcp.session import McpSession
    from toolrest.gate.session import Ground
    from toolrest.gate.tool.registry import Registry
    from toolrest.mcp.pool import Pool

_FILES = (".mcp.json", "mcp.json")
HEAD_START = 0.25
"""Seconds that a session has for its first request before servers want the processor."""


def mcp_servers(ground: Ground, registry: Registry) -> McpServers | None:
    """The session's servers, or None; `ctx.mcp` works either way."""
    workspace = ground.files.workspace
    brought = any(project_has(os.path.join(workspace, name)) for name in _FILES)
    settings = ground.settings
    if not (settings.mcp_servers or settings.active_mcp_servers or brought):
        return None
    return McpServers(ground, registry)


class McpServers:
    """The servers, made on first use; at once if tools are cached, for the first request."""

    def __init__(self, ground: Ground, registry: Registry) -> None:
        self._settings = ground.settings
        self.session = Lazy(lambda: _session(ground, registry))
        """The servers themselves."""
        self._starting: asyncio.Task[None] | None = None
        if os.path.exists(os.path.join(ground.config.home, "mcp", "tools.json")):
            self.session()

    def pool(self) -> Pool:
        """Their pool."""
        return self.session().pool

    def explain(self, name: str) -> str | None:
        """The state of the server that a name without a tool belongs to."""
        return self.session().explain(name)

    def start(self) -> None:
        """Begin to connect in the background. Twice does no harm."""
        if self._starting is not None:
            return

        async def later() -> None:
            await asyncio.sleep(HEAD_START)
            self.session().start(delay=0.0)

        self._starting = asyncio.ensure_future(later())

    async def wait(self, names: tuple[str, ...] | None) -> None:
        """Wait for these servers, or for all."""
        await self.session().wait(names)

    async def wait_first(self, *, everyone: bool) -> None:
        """Wait for the servers whose tools belong into the first request: `required` ones, or all.

        Those whose tools are known from an earlier session are not waited for.
        """
        self.start()
        if everyone or any(row.required for row in self._settings.mcp_servers.values()):
            await self.session().wait_first(everyone=everyone)

    async def wait_for_tool(self, name: str) -> None:
        """Wait for the server that a name without a tool belongs to, if it is starting."""
        await self.session().wait_for_tool(name)

    async def aclose(self) -> None:
        """End every server."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self.session.made is not None:
            await self.session.made.aclose()


def _session(ground: Ground, registry: Registry) -> McpSession:
    from toolrest.agent.mcp.session import McpSession
    from toolrest.mcp.servers import configured

    found = configured(ground.config, ground.environ, ground.files.workspace)
    return McpSession(ground, found, registry)


def no_servers() -> Pool:
    """The pool of a session that has no servers."""
    from toolrest.mcp.pool import Pool
    from toolrest.mcp.transports.host import Host
    from toolrest.process.owner import Owner

    async def never(_server: object) -> Any:
        raise NotImplementedError

    return Pool((), Host(never, Owner))
