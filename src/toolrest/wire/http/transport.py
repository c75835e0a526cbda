"""How bytes get to a server and back: what `Http` needs, whoever provides it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class TransportError(Exception):
    """A request failed below HTTP."""


class Unreachable(TransportError):
    """There was no connection."""


class ProxyFailed(Unreachable):
    """The proxy did not let it through."""


class Broken(TransportError):
    """The connection ended in the middle."""


class Idle(TransportError):
    """Nothing came for too long."""


class Answer(Protocol):
    """An answer that has begun; header names are in lower case."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes."""


class Transport(Protocol):
    """Sends requests, one at a time or several, over connections that it keeps."""

    def stream(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Answer]:
        """Send a request; TransportError when it fails, ValueError when it cannot be one."""

    async def aclose(self) -> None:
        """Close the connections."""


def transport_for(connect_timeout: float, idle_timeout: float) -> Transport:
    """A direct one, unless the environment names a proxy."""
    if _has_proxy():
        from toolrest.wire.http._merge_proxied import Proxied

        return Proxied(connect_timeout, idle_timeout)
    from toolrest.wire.http.direct import Direct

    return Direct(connect_timeout, idle_timeout)


def _has_proxy() -> bool:
    if sys.platform != "linux":
        from urllib.request import getproxies  # the system's settings count there

        return bool(getproxies().keys() & {"http", "https", "all"})
    names = {name.lower() for name, value in os.environ.items() if value}
    return bool(names & {"http_proxy", "https_proxy", "all_proxy"})
