"""URL access of the tools that fetch in our own process: allowed hosts and addresses.

The host is parsed and judged, resolved once, and each address judged again; the caller connects
to one of these addresses and nowhere else. Every hop of a redirect goes through here anew.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from toolrest.sandbox.network.hosts import (
    Allowlist,
    Resolver,
    is_public,
    parse_address,
    parse_host,
    resolve_host,
)
from toolrest.urls import HttpUrl, UnsupportedScheme, parse_url

SETTING = "tool_security.allowed_network_domains"
_LONGEST = 8_000
_BAD = re.compile(r"[\x00-\x20\x7f-\x9f\\]|[\ud800-\udfff]")


class UrlRefused(Exception):
    """The URL may not be asked for or does not lead anywhere; the message is for the model."""


def parse_web_url(text: str) -> HttpUrl:
    """A URL that a model wrote, its host in the one spelling that is judged and connected to.

    UrlRefused when it is none, could be read in two ways, or holds credentials.
    """
    if len(text) > _LONGEST:
        raise UrlRefused(f"Invalid URL: longer than {_LONGEST:,} characters")
    if _BAD.search(text):
        raise UrlRefused("Invalid URL: it holds spaces, backslashes or control characters")
    try:
        url = parse_url(text)
        host = parse_host(url.host)
    except UnsupportedScheme as error:
        problem = f"Unsupported protocol: {error.scheme or text[:40]} (http or https)"
        raise UrlRefused(problem) from None
    except ValueError as error:
        raise UrlRefused(f"Invalid URL: {error}") from None
    if url.user is not None:
        raise UrlRefused("Invalid URL: a name or password in it is not sent")
    return replace(url, host=host)


class UrlAccess(Struct):
    """Which hosts a session may reach from our own process.

    `listed` binds where it is set, even when it is empty. Otherwise any host that is not private
    or reserved may be asked for; `always_allowed` are hosts and ports that the user's settings
    name, wherever they are.
    """

    listed: Allowlist | None = None
    always_allowed: frozenset[tuple[str, int]] = frozenset()
    resolve: Resolver | None = None

    def refusal(self, url: HttpUrl) -> str | None:
        """Why a host may not be asked for, by its name alone; None when it may."""
        if self.listed is not None:
            if self.listed.allows_name(url.host, url.port):
                return None
            return f"{url.authority} is not in {SETTING}"
        address = parse_address(url.host)
        if address is None or is_public(address) or (url.host, url.port) in self.always_allowed:
            return None
        return f"{url.host} is a private or reserved address ({SETTING} may list it)"

    async def addresses(self, url: HttpUrl) -> list[str]:
        """Where to connect, judged; the name is resolved here and never again."""
        reason = self.refusal(url)
        if reason is not None:
            raise UrlRefused(reason)
        if parse_address(url.host) is not None:
            return [url.host]
        try:
            found = await (self.resolve or resolve_host)(url.host, url.port)
        except (OSError, UnicodeError):
            raise UrlRefused(f"the host name {url.host} cannot be resolved") from None
        allowed = [text for text in found if self._may_lead(text, url)]
        if not allowed:
            raise UrlRefused(
                f"{url.host} leads to a private or reserved address ({SETTING} may list it)"
                if found
                else f"the host name {url.host} cannot be resolved"
            )
        return allowed

    def _may_lead(self, text: str, url: HttpUrl) -> bool:
        address = parse_address(text)
        if address is None:
            return False
        if (url.host, url.port) in self.always_allowed or is_public(address):
            return True
        return self.listed is not None and self.listed.allows_address(address, url.port)
