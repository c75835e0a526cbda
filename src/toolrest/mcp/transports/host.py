"""The host of connections, the transport protocol, and the choice of a transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from toolrest.items import JSONObject

if TYPE_CHECKING:
    from toolrest.mcp.definitions import Definition
    from toolrest.mcp.servers import Server
    from toolrest.process.owner import Owner
    from toolrest.sandbox.confine import Confined


class Wire(Protocol):
    """A transport: two streams and, when they end, the reason."""

    @property
    def read(self) -> Any:
        """The stream of incoming messages, with the event `ended` and the callback `on_end`."""
        ...

    @property
    def write(self) -> Any:
        """The stream of outgoing messages."""
        ...

    @property
    def is_modern(self) -> bool:
        """Whether the server is known to speak 2026-07-28."""
        ...

    @property
    def offline(self) -> bool:
        """Whether a sandbox holds the server off the network."""
        ...

    async def ending(self) -> str:
        """The reason why the connection ended."""
        ...

    def last_output(self) -> str:
        """The server's last output besides its messages, to be added to a reason."""
        ...


Ask = Callable[["Server", str, JSONObject], Awaitable[JSONObject]]
"""(server, message, schema of the answer) → an ElicitResult as JSON."""

Sample = Callable[["Server", JSONObject], Awaitable[JSONObject]]
"""(server, CreateMessage parameters) → a CreateMessageResult as JSON."""


class FolderDenial(Struct, frozen=True):
    """A folder that the sandbox kept from a server, and the user's answer about it."""

    approved: bool
    note: str


class Host(Struct):
    """The session, as connections use it. Nothing in it comes from a server or a model."""

    confine: Callable[[Server], Awaitable[Confined]]
    owner: Callable[[], Owner]
    roots: tuple[str, ...] = ()
    may_connect: Callable[[Server], str | None] = lambda _server: None
    """Returns the reason why a server over HTTP is denied, or None."""
    may_start: Callable[[Server], Awaitable[str | None]] | None = None
    """Called before a server is started for the first time: the reason of a denial, or None."""
    denied: Callable[[Server, str], Awaitable[FolderDenial | None]] | None = None
    """Called with a server's error: asks about a folder that the sandbox kept from it, if any."""
    ask: Ask | None = None
    sample: Sample | None = None
    http_auth: Callable[[Server], Any] | None = None
    check: Callable[[Server, Definition], str | None] = lambda _server, _definition: None
    """Returns the reason why a tool cannot be used, or None; called in a thread."""
    client_version: str = "0"
    redact: Callable[[str], str] = str
    """Redacts secrets in a server's output before it becomes part of a reason."""
    environ: Mapping[str, str] = field(default_factory=dict)


def open_wire(server: Server, host: Host) -> AbstractAsyncContextManager[Wire]:
    """The transport that the server's settings name."""
    if server.transport == "stdio":
        return _stdio(server, host)
    from toolrest.mcp.transports.http import http_wire

    return http_wire(server, host)


def _stdio(server: Server, host: Host) -> AbstractAsyncContextManager[Wire]:
    from toolrest.mcp.transports.stdio import stdio_wire

    @asynccontextmanager
    async def opened() -> Any:
        owner = host.owner()
        await owner.prepare()  # a helper is there before anything is made in the workspace
        confined = await host.confine(server)
        held = "network" in confined.controls and confined.controls["network"].level == "full"
        async with stdio_wire(owner, confined) as wire:
            wire.offline = held and server.row.network is False
            yield wire

    return opened()
