"""The transport through a proxy, by httpx2: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2

from toolrest.urls import parse_url
from toolrest.wire.http.transport import (
    BAD_HEADER,
    Broken,
    HttpResponse,
    Idle,
    ProxyFailed,
    TransportError,
    header_lines,
)


class Proxied:
    """A pool of connections through the proxies of the environment."""

    def __init__(self, connect_timeout: float, idle_timeout: float) -> None:
        timeout = httpx2.Timeout(None, connect=connect_timeout, read=idle_timeout)
        _check_proxies()
        try:
            self._client = httpx2.AsyncClient(timeout=timeout)
        except ImportError:
            raise ValueError("a SOCKS proxy needs the package socksio") from None
        except (ValueError, httpx2.InvalidURL):
            raise ValueError("a proxy of the environment cannot be used") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[HttpResponse, None]:
        """Send a request, and read the response as it comes."""
        # The library logs the URL it is given, so it is not given what may be secret.
        parts = parse_url(url)
        target = {"target": parts.target.encode()}
        if parts.user is not None:
            basic = f"Basic {b64encode(parts.user.reveal().encode()).decode()}"
            headers = {"authorization": basic, **headers}
        try:
            request = self._client.stream(
                method,
                parts.without_query,
                content=body,
                headers=header_lines(headers),
                extensions=target,
            )
            async with request as response:
                yield cast(HttpResponse, response)
        except httpx2.LocalProtocolError:
            raise ValueError(BAD_HEADER) from None
        except httpx2.HTTPError as error:
            raise _translated(error) from None
        except httpx2.InvalidURL as error:
            raise ValueError(str(error)) from None


def _check_proxies() -> None:
    """Raise ValueError for an address that is none; the library's own error is no use, or none."""
    for kind, address in getproxies().items():
        try:
            port = kind == "no" or urlsplit(address if "//" in address else f"//{address}").port
        except ValueError:  # its message would repeat a part of the address
            port = 0
        if port == 0:
            raise ValueError(f"the address of the proxy in {kind.upper()}_PROXY is not valid")


def _translated(error: httpx2.HTTPError) -> TransportError:
    message = str(error) or type(error).__name__
    if isinstance(error, httpx2.ReadTimeout):
        return Idle()
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.DecodingError):
        return Broken(message)
    return ProxyFailed(message)
