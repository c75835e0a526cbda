"""The pool of one session's servers: started together in the background, used one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolrest.items import JSONObject
from toolrest.mcp.connection import Connection, Status, silence_sdk
from toolrest.mcp.definitions import Definition
from toolrest.mcp.errors import McpError, McpRefused, McpUnavailable, approve_hint

if TYPE_CHECKING:
    from toolrest.mcp.conversation import OnProgress
    from toolrest.mcp.servers import Server
    from toolrest.mcp.transports.host import Host

HEAD_START = 0.25
"""Seconds that the session has for its first request before the servers are started."""


PATIENCE = 3.0
"""Seconds that a list of all servers waits for those that are still starting."""


class Pool:
    """The session's servers. Nothing is started before `start`, or before it is needed."""

    def __init__(
        self,
        servers: Iterable[Server],
        host: Host,
        on_change: Callable[[Connection], None] | None = None,
    ) -> None:
        self._host = host
        self._on_change = on_change
        self._sdk: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self.connections = {
            server.name: Connection(server, host, self._load_sdk, self._notify)
            for server in servers
        }
        self._closed = False

    # Life

    def start(self, names: Iterable[str] | None = None, delay: float = HEAD_START) -> None:
        """Begin to connect to these servers, or to all, after a moment; returns at once."""
        chosen = list(self.connections) if names is None else list(names)
        if self._closed or not chosen or self._starting is not None:
            return

        async def later() -> None:
            await asyncio.sleep(delay)
            for name in chosen:
                self.connections[name].start()

        self._starting = asyncio.ensure_future(later())

    async def wait(self, names: Iterable[str] | None = None) -> None:
        """Start these servers, or all, now; return when each is ready or has failed."""
        chosen = list(self.connections) if names is None else list(names)
        await asyncio.gather(*(self._known(name).settled() for name in chosen))

    async def aclose(self) -> None:
        """End every server; all at once, each in its own task."""
        self._closed = True
        for task in (self._starting, self._sdk):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task})
        await asyncio.gather(*(connection.aclose() for connection in self.connections.values()))

    async def _load_sdk(self) -> None:
        """Import the SDK once, in a thread: it would block the event loop for long."""
        if self._sdk is None or self._sdk.cancelled():
            self._sdk = asyncio.ensure_future(asyncio.to_thread(_import_sdk))
        await asyncio.shield(self._sdk)

    def _notify(self, connection: Connection) -> None:
        if self._on_change is not None and not self._closed:
            self._on_change(connection)

    # What there is

    def __len__(self) -> int:
        return len(self.connections)

    def status(self) -> list[Status]:
        """Every server, by name."""
        return [connection.status() for _, connection in sorted(self.connections.items())]

    # Asking

    async def call(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        known: Definition | None = None,
        on_progress: OnProgress | None = None,
    ) -> JSONObject:
        """Call a tool; return the result as the server sent it. McpError carries the reason.

        With `known`, only if the server still defines the tool in this way: it may have been
        started just for this call, or have changed the definition.
        """
        connection = self._known(server)
        if not connection.server.offers(tool):
            raise McpError(f"tool '{tool}' is disabled for MCP server '{server}'")
        if known is not None:
            await connection.ready()
            if connection.definitions.get(tool) != known:
                raise McpError(
                    f"the server '{server}' no longer describes '{tool}' as it was approved",
                    hints=(approve_hint(server),),
                )
        params: JSONObject = {"name": tool, "arguments": dict(arguments or {})}
        row = connection.server.row
        try:
            result = await connection.request(
                "tools/call", params, at_most=row.tool_timeout_max_sec, on_progress=on_progress
            )
        except McpRefused as error:
            if note := await connection.note_on(str(error)):
                raise McpRefused(f"{error}\n{note}", error.code) from None
            raise
        if result.get("isError") and (note := await connection.note_on(_text_of(result))):
            result["content"] = [*result["content"], {"type": "text", "text": note}]
        return result

    async def page(self, server: str, method: str, cursor: str | None) -> JSONObject:
        """One page of one of a server's lists."""
        params = {"cursor": cursor} if cursor is not None else None
        return await self._known(server).request(method, params)

    async def every(
        self, method: str, key: str, capability: str
    ) -> tuple[dict[str, list[Any]], dict[str, str]]:
        """All entries of the lists of all servers that have one, and the failures, by server.

        A server that does not get ready within PATIENCE is a failure, and one that has failed is
        not tried again: a list of many must not wait for one that is dead.
        """
        found: dict[str, list[Any]] = {}
        failed: dict[str, str] = {}

        async def one(name: str, connection: Connection) -> None:
            try:
                await connection.soon_ready(PATIENCE)
                if capability in connection.capabilities:
                    found[name] = await connection.pages(method, key)
            except McpError as error:
                failed[name] = str(error)

        await asyncio.gather(*(one(*pair) for pair in self.connections.items()))
        return dict(sorted(found.items())), dict(sorted(failed.items()))

    async def read_resource(self, server: str, uri: str) -> JSONObject:
        """The contents of a resource, as the server sent them."""
        return await self._known(server).request("resources/read", {"uri": uri})

    async def prompts(self) -> tuple[dict[str, list[Any]], dict[str, str]]:
        """The prompts of every server that has some, and the failures, by server."""
        return await self.every("prompts/list", "prompts", "prompts")

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str] | None = None
    ) -> JSONObject:
        """A prompt of a server, filled in."""
        params: JSONObject = {"name": name, "arguments": dict(arguments or {})}
        return await self._known(server).request("prompts/get", params)

    def _known(self, name: str) -> Connection:
        if self._closed:
            raise McpUnavailable("the session is closed")
        if name not in self.connections:
            known = ", ".join(sorted(self.connections)) or "none is configured"
            raise McpError(f"unknown MCP server '{name}' (there are: {known})")
        return self.connections[name]


def _text_of(result: JSONObject) -> str:
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def _import_sdk() -> None:
    try:
        import_module("toolrest.mcp.conversation")
    except ImportError:
        raise McpUnavailable(
            "MCP servers need the package `mcp`",
            hints=("Install it with `pip install 'toolrest[mcp]'`.",),
        ) from None
    silence_sdk()
