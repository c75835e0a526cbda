"""The network allowlist: host names are compared label by label, addresses by their ranges.

A host that is not plainly a name or an address is refused before anything is compared: a NUL or
a space in it, an empty label, a number in disguise. What is compared is what is resolved, and
what is resolved is what is connected to.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from toolrest.errors import ConfigError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""From the name and port of a host to its addresses."""
Range: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that is given out for the open internet; other ranges wrap or translate addresses."""
_LOOPBACK: tuple[Range, ...] = (
    ipaddress.IPv4Network("127.0.0.0/8"),
    ipaddress.IPv6Network("::1/128"),
)


class BadHost(ValueError):
    """Not a host name and not an address."""


def parse_host(text: str) -> str:
    """The one spelling of a host: ASCII, lower case, no final dot; or an address."""
    address = parse_address(text)
    if address is not None:
        return str(address)
    if not text or len(text) > 1000 or not text.isprintable() or any(c.isspace() for c in text):
        raise BadHost("a host name may not be empty or hold spaces or control characters")
    try:
        name = text.lower() if text.isascii() else text.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise BadHost("not a valid international host name") from None
    labels = name.removesuffix(".").split(".")
    if len(name) > 254 or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadHost("not a valid host name")
    if _NUMBER.fullmatch(labels[-1]):
        raise BadHost("a host name may not end in a number")  # 127.1 and friends are addresses
    return ".".join(labels)


def parse_address(text: str) -> Address | None:
    """An IP address in its usual spelling, with or without brackets; None for anything else."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "%" in bare or not bare.isascii():
        return None
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        return None


async def resolve_host(name: str, port: int) -> Sequence[str]:
    """The addresses of a host, by the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: Address) -> bool:
    """Whether an address belongs to the open internet, also when wrapped in another one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast


class HostEntry(Struct, frozen=True):
    """One line of an allowlist."""

    labels: tuple[str, ...] = ()
    below: bool = False
    """True for `*.example.com`: names beneath, not the name itself."""
    ranges: tuple[Range, ...] = ()
    port: int | None = None

    def covers(self, labels: tuple[str, ...]) -> bool:
        """Whether a name, given by its labels, is meant."""
        if self.ranges and not self.labels:
            return False
        if not self.below:
            return labels == self.labels
        count = len(self.labels)
        return len(labels) > count and (not count or labels[-count:] == self.labels)


class Allowlist:
    """The hosts that may be reached; an empty one means none.

    `example.com` is that name, `*.example.com` the names beneath it, `*` any public name;
    addresses and ranges (`10.0.0.0/8`) open private ones; `:port` narrows an entry to a port.
    What is `denied` by its very name is not reached, whatever else is listed, nor what the
    list `within` which this one lies does not allow.
    """

    def __init__(
        self,
        entries: Iterable[str],
        setting: str = "allowed_network_domains",
        *,
        denied: Iterable[str] = (),
        within: Allowlist | None = None,
    ) -> None:
        self.entries = tuple(_entry(text, setting) for text in entries)
        self._denied = frozenset(denied)
        self._within = within

    def allows_name(self, host: str, port: int) -> bool:
        """Whether this parsed host may be asked for at all."""
        if host in self._denied:
            return False
        if self._within is not None and not self._within.allows_name(host, port):
            return False
        address = parse_address(host)
        if address is not None:
            return self._listed(address, port)
        labels = tuple(host.split("."))
        return any(e.covers(labels) and e.port in (None, port) for e in self.entries)

    def names(self, host: str) -> bool:
        """Whether this host is listed, on whatever port."""
        try:
            name = parse_host(host)
        except BadHost:
            return False
        return any(self.allows_name(name, entry.port or 443) for entry in self.entries)

    def allows_address(self, address: Address, port: int) -> bool:
        """Whether a name may lead here: public, or a range that is listed."""
        if self._within is not None and not self._within.allows_address(address, port):
            return False
        return is_public(address) or self._listed(address, port)

    def _listed(self, address: Address, port: int) -> bool:
        return any(
            address in place
            for entry in self.entries
            if entry.port in (None, port)
            for place in entry.ranges
        )


def _entry(text: str, setting: str) -> HostEntry:
    try:
        rest, port = _split_port(text.strip())
        if rest == "*":
            return HostEntry(below=True, port=port)
        if _looks_like_range(rest):
            return HostEntry(
                ranges=(ipaddress.ip_network(rest.strip("[]"), strict=False),), port=port
            )
        below = rest.startswith("*.")
        name = parse_host(rest[2:] if below else rest)
        if parse_address(name) is not None:
            raise BadHost("`*.` needs a name")
        ranges = _LOOPBACK if name == "localhost" and not below else ()
        return HostEntry(tuple(name.split(".")), below, ranges, port)
    except ValueError as problem:
        raise ConfigError(
            f"{setting}: {text!r} is not a host, `*.` and a host, an address or a range ({problem})"
        ) from None


def _looks_like_range(text: str) -> bool:
    return "/" in text or parse_address(text) is not None


def _split_port(text: str) -> tuple[str, int | None]:
    """`host:443` → host and port; an IPv6 address needs brackets to carry one."""
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*):([0-9]{1,5})", text)
    if match is None:
        return text, None
    port = int(match[2])
    if not 0 < port < 65536:
        raise BadHost("no such port")
    return match[1], port
