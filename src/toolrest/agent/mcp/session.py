"""A session's MCP servers: their pool, and the registry kept in step with what they offer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolrest import __version__, events
from toolrest.agent.mcp.confine import ServerBoxes
from toolrest.agent.mcp.folders import ServerFolders
from toolrest.agent.mcp.offered import OfferedTools
from toolrest.agent.mcp.server_requests import ServerQuestions
from toolrest.agent.mcp.trust import Trust
from toolrest.config.files import placeholder_records
from toolrest.errors import ToolDefinitionError, ToolrestError
from toolrest.events import Event, McpServerState
from toolrest.mcp.definitions import Definition
from toolrest.mcp.errors import approve_hint
from toolrest.mcp.pool import HEAD_START, Pool
from toolrest.mcp.tool_cache import ToolCache, tool_cache_path
from toolrest.mcp.transports.host import Host
from toolrest.process.owner import Owner
from toolrest.sandbox.network.hosts import Allowlist, parse_host
from toolrest.tools.mcp.tool import McpTool

if TYPE_CHECKING:
    from toolrest.gate.session import Ground
    from toolrest.gate.tool.registry import Registry
    from toolrest.mcp.connection import Connection
    from toolrest.mcp.pins import Changes
    from toolrest.mcp.servers import Configured, Server

_PATIENCE = 1.0
_log = logging.getLogger("toolrest")


class McpSession:
    """The servers of one session. Made only when some are configured."""

    def __init__(
        self,
        ground: Ground,
        found: Configured,
        registry: Registry,
    ) -> None:
        config, files, environ = ground.config, ground.files, ground.environ
        self._config = config
        self._bus = ground.bus
        self._owner: Owner | None = None
        self._trust = Trust(ground)
        self._boxes = ServerBoxes(ground, self._trust.folders)
        self._folders = ServerFolders(self._boxes, self._trust, files, environ)
        self._cache = ToolCache(tool_cache_path(config.home))
        questions = ServerQuestions(ground)
        self._offered = OfferedTools(config, registry)
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._states: dict[str, tuple[str, str]] = {}
        self._one_writer = asyncio.Lock()
        self._seen: dict[str, dict[str, Definition]] = {}
        self.warnings = list(found.warnings)
        for server in found.servers.values():
            ground.redactor.learn(server.secrets())
        host = Host(
            confine=self._boxes.confine,
            owner=self._own,
            roots=(files.workspace,),
            may_connect=self._may_connect,
            may_start=self._may_start,
            denied=self._folders.denied,
            ask=questions.elicit,
            sample=questions.sample,
            http_auth=self._http_auth,
            check=_unusable,
            client_version=__version__,
            redact=ground.redactor.redact,
            environ=environ,
        )
        self.pool = Pool(found.servers.values(), host, self._on_change)
        self._fresh = {server.name for server in found.servers.values() if self._recall(server)}
        self._offered.settle()

    def _recall(self, server: Server) -> bool:
        """Offer the cached tools of a server, as far as they are pinned; True if they are fresh."""
        cached = self._cache.get(server)
        if cached is None or not self._trust.is_pinned(server):
            return False
        known = self._trust.known_tools(server, cached.definitions)
        self._offered.recall(server, known, cached.rejected)
        return cached.fresh

    def start(self, delay: float = HEAD_START) -> None:
        """Begin to connect in the background. Twice does no harm."""
        self._warn()
        stale = [name for name in self.pool.connections if name not in self._fresh]
        self.pool.start(stale, delay)

    def _warn(self) -> None:
        for warning in self.warnings:
            self._emit(events.Warning(message=warning))
        self.warnings.clear()

    async def wait(self, names: Iterable[str] | None = None) -> None:
        """Wait until these servers, or all, are ready or have failed, and approvals answered."""
        await self.pool.wait(names)
        await self.settled()

    async def wait_first(self, *, everyone: bool) -> None:
        """Wait for the servers with the setting `required`, or for all whose tools are not known.

        After a second it is said for which.
        """
        self._warn()
        rows = sorted(self.pool.connections.items())
        needed = [
            c for _, c in rows if c.server.row.required or (everyone and not self._knows(c.server))
        ]
        waiting = asyncio.gather(
            *(connection.settled() for connection in needed),
            asyncio.to_thread(self._offered.prepare),
        )
        try:
            await asyncio.wait({waiting}, timeout=_PATIENCE)
            for connection in needed:
                if connection.state in ("configured", "starting"):
                    self._emit(events.Warning(message=_waits_for(connection.server)))
            await waiting
        finally:
            waiting.cancel()

    def _knows(self, server: Server) -> bool:
        return bool(self._offered.of(server))

    async def wait_for_tool(self, name: str) -> None:
        """Wait for the server that a name without a tool belongs to, if it is starting."""
        connection, _ = self._named_in(name)
        if connection is not None and connection.state in ("configured", "starting"):
            await self.wait([connection.server.name])

    async def aclose(self) -> None:
        """End every server and remove its sandbox."""
        for task in self._asking.values():
            task.cancel()
        if tasks := {*self._asking.values(), *self._writing}:
            await asyncio.wait(tasks)
        await self.pool.aclose()
        if self._owner is not None:
            await self._owner.aclose()
        await self._boxes.aclose()

    def _own(self) -> Owner:
        """The owner of the servers' processes: a helper of their own, started with the first."""
        if self._owner is None:
            self._owner = Owner(records=placeholder_records(self._config.home))
        return self._owner

    async def _may_start(self, server: Server) -> str | None:
        refused = await self._trust.may_start(server)
        return refused or await self._folders.may_start(server)

    def _may_connect(self, server: Server) -> str | None:
        """The reason why `allowed_network_domains` forbids an HTTP server, or None."""
        allowed = self._config.value.tool_security.allowed_network_domains
        if server.host is None or allowed is None:
            return None
        if Allowlist(allowed).allows_name(parse_host(server.host), server.port):
            return None
        return (
            f"its host {server.host} is not in tool_security.allowed_network_domains; "
            "add it there to use this server"
        )

    def _http_auth(self, server: Server) -> Any:
        """The tokens that `toolrest mcp login` has stored, if any."""
        from toolrest.mcp.login.oauth import stored_auth
        from toolrest.mcp.login.tokens import token_store

        options = self._config.value.mcp
        return stored_auth(server, token_store(self._config.home, options.oauth_credentials_store))

    # Keeping the registry in step

    def _on_change(self, connection: Connection) -> None:
        name, state = connection.server.name, (connection.state, connection.reason)
        if self._states.get(name) != state:
            self._states[name] = state
            self._emit(McpServerState(server=name, state=state[0], reason=state[1]))
            if connection.state == "failed":
                self._emit(events.Warning(message=_not_there(connection.server, connection.reason)))
        if connection.listed and connection.state == "ready":
            self._review(connection)

    def _review(self, connection: Connection) -> None:
        """Offer tools that are as they were approved; ask about the rest."""
        server, definitions = connection.server, dict(connection.definitions)
        if self._seen.get(server.name) == definitions:
            return
        self._seen[server.name] = definitions
        rejected = dict(connection.rejected)
        if rejected:
            self._emit(events.Warning(message=_set_aside(server, rejected)))
        if self._trust.first_sight(server, definitions):
            self._offered.set(server, definitions, rejected)
            self._remember(connection)
            return
        found = self._trust.difference(server, definitions)
        for name in found.untrusted:
            what = "new" if name in found.added else "changed"
            rejected[name] = _NOT_APPROVED.format(what=what, hint=approve_hint(server.name))
        self._offered.set(server, self._trust.known_tools(server, definitions), rejected)
        self._remember(connection)
        if found.untrusted:
            self._ask(connection, definitions, found)

    def _ask(
        self, connection: Connection, definitions: dict[str, Definition], found: Changes
    ) -> None:
        server = connection.server
        earlier = self._asking.get(server.name)
        if earlier is not None:
            earlier.cancel()

        async def ask() -> None:
            refused = await self._trust.approve_tools(server, definitions, found)
            if refused is None and self._seen.get(server.name) == definitions:
                self._offered.set(server, definitions, connection.rejected)
                self._remember(connection)

        self._asking[server.name] = asyncio.ensure_future(ask())

    def _remember(self, connection: Connection) -> None:
        """Write what is offered to the cache, beside the event loop, one after the other."""
        server, rejected = connection.server, dict(connection.rejected)
        definitions = self._offered.of(server)

        async def write() -> None:
            async with self._one_writer:
                await asyncio.to_thread(self._cache.put, server, definitions, rejected)

        task = asyncio.ensure_future(write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def settled(self) -> None:
        """Wait until every approval of changed tools is answered."""
        if self._asking:
            await asyncio.wait(set(self._asking.values()))

    def _emit(self, event: Event) -> None:
        try:
            self._bus.emit(event)
        except ToolrestError:
            # The next call meets the same problem and reports it; a background task cannot.
            _log.exception("cannot emit an event of the MCP servers")

    def explain(self, name: str) -> str | None:
        """The state of the server that a name without a tool belongs to."""
        connection, tool = self._named_in(name)
        if connection is None:
            return None
        server = connection.server.name
        if tool in connection.rejected:
            return f"the tool is set aside: {connection.rejected[tool]}"
        if connection.state == "ready":
            return f"the MCP server {server} has no such tool"
        reason = f": {connection.reason}" if connection.reason else ""
        return f"the MCP server {server} is {_STATES[connection.state]}{reason}"

    def _named_in(self, name: str) -> tuple[Connection | None, str]:
        """The server that the name of a tool begins with, and the rest of the name."""
        for server, connection in self.pool.connections.items():
            for start in (f"mcp__{server}__", f"{server}/"):
                if name.startswith(start):
                    return connection, name.removeprefix(start)
        return None, ""


def _unusable(server: Server, definition: Definition) -> str | None:
    try:
        McpTool(definition, server).validate()
    except ToolDefinitionError as error:
        return str(error)
    return None


def _set_aside(server: Server, rejected: Mapping[str, str]) -> str:
    first, *more = rejected.items()
    others = f", and {len(more)} more" if more else ""
    return (
        f"a tool of the MCP server {server.name} is set aside: {first[0]}: {first[1]}{others} "
        f"(all: toolrest mcp test {server.name})"
    )


def _not_there(server: Server, reason: str) -> str:
    kind = "required MCP" if server.row.required else "MCP"
    return f"the {kind} server {server.name} is not available: {reason}"


def _waits_for(server: Server) -> str:
    kind, limit = "required MCP" if server.row.required else "MCP", server.row.startup_timeout_sec
    return f"waiting for the {kind} server {server.name} (at most {limit:g} s: startup_timeout_sec)"


_NOT_APPROVED = "its definition is {what} since the server was approved. {hint}"
_STATES = {
    "configured": "not connected yet",
    "starting": "still starting; try again in a moment",
    "degraded": "lost and being connected again",
    "failed": "not available",
    "ready": "ready",
}
