"""How a connection is made: what it needs to know of a transport, and which there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from toolrest.items import JSONObject
from toolrest.records import dataclass, field

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server
    from toolrest.process.owner import Owner
    from toolrest.sandbox.confine import Confined


class Wire(Protocol):
    """Two streams and, when they end, the reason in words."""

    @property
    def read(self) -> Any:
        """Where messages come from; has the event `ended` and the callback `on_end`."""
        ...

    @property
    def write(self) -> Any:
        """Where messages go."""
        ...

    async def ending(self) -> str:
        """Why the connection ended, in words."""
        ...

    def said(self) -> str:
        """What the server said besides its messages, to be added to a reason."""
        ...


Ask = Callable[["Server", str, JSONObject], Awaitable[JSONObject]]
"""(server, message, schema of the answer) → an ElicitResult as JSON."""

Sample = Callable[["Server", JSONObject], Awaitable[JSONObject]]
"""(server, CreateMessage parameters) → a CreateMessageResult as JSON."""


@dataclass(slots=True)
class Host:
    """What the rooms above give to connections. Nothing here comes from a server or a model."""

    confine: Callable[[Server], Awaitable[Confined]]
    owner: Callable[[], Owner]
    roots: tuple[str, ...] = ()
    may_connect: Callable[[Server], str | None] = lambda _server: None
    """Why a server over HTTP may not be reached, or None."""
    may_start: Callable[[Server], Awaitable[str | None]] | None = None
    """Asked before a server is started for the first time: why not, or None."""
    ask: Ask | None = None
    sample: Sample | None = None
    http_auth: Callable[[Server], Any] | None = None
    client_version: str = "0"
    redact: Callable[[str], str] = str
    """Takes secrets out of what a server said, before anybody reads it as a reason."""
    environ: Mapping[str, str] = field(default_factory=dict)


def open_wire(server: Server, host: Host) -> AbstractAsyncContextManager[Wire]:
    """The transport that the server's settings name."""
    if server.transport == "stdio":
        return _stdio(server, host)
    from toolrest.mcp.transports.http import http_wire

    return http_wire(server, host)


def _stdio(server: Server, host: Host) -> AbstractAsyncContextManager[Wire]:
    from contextlib import asynccontextmanager

    from toolrest.mcp.transports.stdio import stdio_wire

    @asynccontextmanager
    async def opened() -> Any:
        confined = await host.confine(server)
        async with stdio_wire(host.owner(), confined) as wire:
            yield wire

    return opened()
