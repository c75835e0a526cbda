"""Sandboxes of a session's MCP servers: its path policy, a cache and a network of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.agent.path_policy import shared_tmp
from toolrest.config.files import placeholder_records
from toolrest.gate.approval.user_rules import kept_from_writing
from toolrest.mcp.definitions import digest
from toolrest.mcp.errors import McpUnavailable
from toolrest.mcp.launch import command_of, with_own_byte_code
from toolrest.policy.paths.policy import PathPolicy
from toolrest.private_files import remove_tree
from toolrest.running.confinement import released_with
from toolrest.sandbox.confine import Confined, SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import Network, SandboxPolicy

if TYPE_CHECKING:
    from toolrest.gate.session import Ground
    from toolrest.mcp.pins import Access
    from toolrest.mcp.servers import Server
    from toolrest.sandbox.network.proxy import NetworkProxy


class ServerBoxes:
    """A sandbox for each server, made when it starts."""

    def __init__(self, ground: Ground, approved: Callable[[Server, Access], Sequence[str]]) -> None:
        self._config = ground.config
        self._files = ground.files
        self._environ = ground.environ
        self._approved = approved
        self._watch = ground.watch
        self._folder = os.path.join(ground.config.home, "run", f"{ground.id}-mcp")
        self._boxes: dict[str, SessionSandbox] = {}
        self._proxies: list[NetworkProxy] = []

    async def confine(self, server: Server) -> Confined:
        """The server's command, ready to start; never outside the sandbox by accident."""
        roots = self._files.writable_roots if self._files.mode == "workspace-write" else ()
        command = command_of(server, self._files.workspace, self._environ, roots)
        command = with_own_byte_code(command, os.path.join(self._cache(server), "byte-code"))
        if self._files.mode == "danger-full-access":
            return Confined(command, "none")
        box = await self.box(server)
        try:
            confined = await asyncio.to_thread(box.confine, command)
            if not box.policy.roots or not box.policy.confines:
                return confined
            return released_with(confined, self._watch().enter(box.policy, confined.controls))
        except SandboxUnavailable as error:
            raise McpUnavailable(str(error)) from None

    async def box(self, server: Server) -> SessionSandbox:
        """The server's sandbox, made on first use."""
        if server.name not in self._boxes:
            self._boxes[server.name] = await self._box(server)
        return self._boxes[server.name]

    def forget(self, server: Server) -> None:
        """Make another sandbox at the server's next start: more folders were approved."""
        self._boxes.pop(server.name, None)

    def write_rule(self, folder: str) -> str | None:
        """The rule against writing in a folder although it were one of the roots."""
        return self._with_roots((folder,)).write_denied(os.path.join(folder, "file"))

    def _cache(self, server: Server) -> str:
        return os.path.join(self._config.home, "mcp", "cache", digest(server.name)[:16])

    async def _box(self, server: Server) -> SessionSandbox:
        settings = self._config.value
        slug = os.path.basename(self._cache(server))
        ceiling = settings.tool_security.allowed_network_domains
        network = network_of(server, ceiling)
        hosts = (ceiling or ()) if isinstance(server.row.network, bool) else server.row.network
        own = os.path.join(self._folder, slug)
        policy = await asyncio.to_thread(
            lambda: SandboxPolicy.from_paths(
                self._paths(server),
                own,
                network=network,
                allowed_hosts=hosts,
                tmp=settings.sandbox_tmp,
                host_tmp=shared_tmp(settings),
                cache_dir=self._cache(server),
                require=settings.sandbox.require,
                external=self._config.external,
            )
        )
        # Read-only, and also where the sandbox has a /tmp of its own.
        shown = (*policy.exceptions, *self._approved(server, "read"))
        policy = replace(policy, exceptions=shown)
        proxy = await self._proxy(hosts, own, ceiling) if network == "allowlist" else None
        return SessionSandbox(
            policy,
            backend=None
            if settings.sandbox_policy in ("docker", "gvisor", "vm")
            else settings.sandbox_policy,
            registry=placeholder_records(self._config.home),
            proxy=proxy.for_sandbox() if proxy is not None else None,
            rootfs=settings.sandbox.rootfs,
        )

    def _paths(self, server: Server) -> PathPolicy:
        more = (*server.row.writable_roots, *self._approved(server, "write"))
        return self._with_roots(more) if more else self._files

    def _with_roots(self, more: Sequence[str]) -> PathPolicy:
        settings = self._config.value
        roots = (*settings.sandbox_workspace_write.writable_roots, *more)
        return PathPolicy(
            self._files.workspace,
            mode=settings.sandbox_mode,
            writable_roots=tuple(os.path.expanduser(root) for root in roots),
            read_roots=settings.read_roots,
            hidden=settings.hidden_paths,
            unhide=settings.paths.unhide,
            toolrest_home=self._config.home,
            protected=kept_from_writing(self._config, self._files.workspace),
            max_file_size=settings.tool_security.max_file_access_size,
        )

    async def _proxy(
        self, hosts: tuple[str, ...], folder: str, ceiling: tuple[str, ...] | None
    ) -> NetworkProxy:
        from toolrest.sandbox.network.proxy import NetworkProxy

        proxy = NetworkProxy(hosts, os.path.join(folder, "proxy.sock"), ceiling=ceiling)
        await proxy.start()
        self._proxies.append(proxy)
        return proxy

    async def aclose(self) -> None:
        """Close the proxies and remove the private folders."""
        for box in self._boxes.values():
            await asyncio.to_thread(box.close)
        for proxy in self._proxies:
            await proxy.aclose()
        remove_tree(self._folder)


def network_of(server: Server, ceiling: tuple[str, ...] | None) -> Network:
    """The network that a local server may reach: no more than the list of the settings."""
    network = server.row.network
    if network is False or ceiling == ():
        return "off"
    return "on" if network is True and ceiling is None else "allowlist"
