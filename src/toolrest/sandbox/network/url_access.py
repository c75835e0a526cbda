"""May this URL be asked for, and at which address? For tools that fetch in our own process.

The host is parsed and judged, resolved once, and each address judged again; the caller connects
to one of these addresses and nowhere else. Every hop of a redirect goes through here anew.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

from toolrest.records import dataclass, field
from toolrest.sandbox.network.hosts import Allowlist, BadHost, is_public, parse_address, parse_host

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

SETTING = "tool_security.allowed_network_domains"
_PORTS = {"http": 80, "https": 443}
_LONGEST = 8_000
_BAD = re.compile(r"[\x00-\x20\x7f-\x9f\\]|[\ud800-\udfff]")


class Unreachable(Exception):
    """The URL may not be asked for or does not lead anywhere; the words are for the model."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL in parts: what is asked, of whom."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port as the Host header wants them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """The whole of it."""
        return self.origin + self.path


def parse_url(text: str) -> Place:
    """An http or https URL in parts; Unreachable when it is none, or could be read in two ways."""
    if len(text) > _LONGEST:
        raise Unreachable(f"Invalid URL: longer than {_LONGEST:,} characters")
    if _BAD.search(text):
        raise Unreachable("Invalid URL: it holds spaces, backslashes or control characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise Unreachable(f"Invalid URL: {error}") from None
    if parts.scheme not in _PORTS:
        raise Unreachable(f"Unsupported protocol: {parts.scheme or text[:40]} (http or https)")
    if "@" in parts.netloc:
        raise Unreachable("Invalid URL: a name or password in it is not sent")
    try:
        host = parse_host(parts.hostname or "")
    except BadHost as problem:
        raise Unreachable(f"Invalid URL: {problem}") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(parts.scheme, host, port or _PORTS[parts.scheme], path)


@dataclass(slots=True)
class Reach:
    """Which hosts a session may reach from our own process.

    `listed` binds when it has entries. Otherwise any host that is not private or reserved may be
    asked for; `own` are hosts and ports that the user's settings name, wherever they are.
    """

    listed: Allowlist = field(default_factory=lambda: Allowlist(()))
    own: frozenset[tuple[str, int]] = frozenset()
    resolve: Resolver | None = None

    def refusal(self, place: Place) -> str | None:
        """Why a host may not be asked for, by its name alone; None when it may."""
        if self.listed.entries:
            if self.listed.allows_name(place.host, place.port):
                return None
            return f"{place.authority} is not in {SETTING}"
        address = parse_address(place.host)
        if address is None or is_public(address) or (place.host, place.port) in self.own:
            return None
        return f"{place.host} is a private or reserved address ({SETTING} may list it)"

    async def addresses(self, place: Place) -> list[str]:
        """Where to connect, judged; the name is resolved here and never again."""
        reason = self.refusal(place)
        if reason is not None:
            raise Unreachable(reason)
        if parse_address(place.host) is not None:
            return [place.host]
        try:
            found = await (self.resolve or _getaddrinfo)(place.host, place.port)
        except (OSError, UnicodeError):
            raise Unreachable(f"the host name {place.host} cannot be resolved") from None
        allowed = [text for text in found if self._may_lead(text, place)]
        if not allowed:
            raise Unreachable(
                f"{place.host} leads to a private or reserved address ({SETTING} may list it)"
                if found
                else f"the host name {place.host} cannot be resolved"
            )
        return allowed

    def _may_lead(self, text: str, place: Place) -> bool:
        address = parse_address(text)
        if address is None:
            return False
        own = (place.host, place.port) in self.own
        return own or self.listed.allows_address(address, place.port)


async def _getaddrinfo(name: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
