"""Set-up of a session's MCP servers; their code is loaded when it is needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolrest.private_files import project_has

if TYPE_CHECKING:
    from toolrest.agent.mcp.server_requests import Sampler
    from toolrest.agent.mcp.session import McpSession
    from toolrest.config import Config
    from toolrest.gate.context import Services
    from toolrest.gate.tool.registry import Registry

_FILES = (".mcp.json", "mcp.json")
HEAD_START = 0.25
"""Seconds that a session has for its first request before servers want the processor."""


def mcp_servers(
    config: Config, services: Services, registry: Registry, environ: Mapping[str, str]
) -> McpServers | None:
    """The session's servers, or None; `ctx.mcp` works either way."""
    workspace = services.files.workspace
    brought = any(project_has(os.path.join(workspace, name)) for name in _FILES)
    if not config.value.mcp_servers and not brought:
        services.make_mcp = _no_servers
        return None
    return McpServers(config, services, registry, environ)


class McpServers:
    """The servers, made on first use; at once if tools are cached, for the first request."""

    def __init__(
        self,
        config: Config,
        services: Services,
        registry: Registry,
        environ: Mapping[str, str],
    ) -> None:
        self._config = config
        self._make: Callable[[], McpSession] = lambda: _session(config, services, registry, environ)
        self._starting: asyncio.Task[None] | None = None
        self._sampler: Sampler | None = None
        self._made = False
        services.make_mcp = lambda: self.session.pool
        registry.explain = lambda name: self.session.explain(name)
        if os.path.exists(os.path.join(config.home, "mcp", "tools.json")):
            _ = self.session

    @cached_property
    def session(self) -> McpSession:
        """The servers themselves."""
        self._made = True
        session = self._make()
        session.questions.sampler = self._sampler
        return session

    def start(self) -> None:
        """Begin to connect in the background. Twice does no harm."""
        if self._starting is not None:
            return

        async def later() -> None:
            await asyncio.sleep(HEAD_START)
            self.session.start(delay=0.0)

        self._starting = asyncio.ensure_future(later())

    def sample_with(self, sampler: Sampler) -> None:
        """Set the sampler that makes completions for servers."""
        self._sampler = sampler
        if self._made:
            self.session.questions.sampler = sampler

    async def wait(self, names: tuple[str, ...] | None, *, required: bool) -> None:
        """Wait for these servers, for all, or for those with the setting `required`."""
        if not required:
            await self.session.wait(names)
        elif any(row.required for row in self._config.value.mcp_servers.values()):
            await self.session.wait_required()

    async def aclose(self) -> None:
        """End every server."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._made:
            await self.session.aclose()


def _session(
    config: Config, services: Services, registry: Registry, environ: Mapping[str, str]
) -> McpSession:
    from toolrest.agent.mcp.session import McpSession
    from toolrest.mcp.servers import configured

    found = configured(config, environ, services.files.workspace)
    session = McpSession(config, found, services, registry, environ)
    services.mcp = session.pool
    return session


def _no_servers() -> Any:
    from toolrest.mcp.pool import Pool
    from toolrest.mcp.transports.host import Host
    from toolrest.process.owner import Owner

    async def never(_server: object) -> Any:
        raise NotImplementedError

    return Pool((), Host(never, Owner))
