"""The transport through a proxy, by httpx2: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import httpx2

from toolrest.wire.http.transport import (
    Broken,
    HttpResponse,
    Idle,
    ProxyFailed,
    TransportError,
    Unreachable,
)


class Proxied:
    """A pool of connections through the proxies of the environment."""

    def __init__(self, connect_timeout: float, idle_timeout: float) -> None:
        timeout = httpx2.Timeout(None, connect=connect_timeout, read=idle_timeout)
        self._client = httpx2.AsyncClient(timeout=timeout)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[HttpResponse, None]:
        """Send a request, and read the response as it comes."""
        try:
            request = self._client.stream(method, url, content=body, headers=headers)
            async with request as response:
                yield cast(HttpResponse, response)
        except httpx2.HTTPError as error:
            raise _translated(error) from None
        except httpx2.InvalidURL as error:
            raise ValueError(str(error)) from None


def _translated(error: httpx2.HTTPError) -> TransportError:
    message = str(error) or type(error).__name__
    if isinstance(error, httpx2.ReadTimeout):
        return Idle()
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.DecodingError):
        return Broken(message)
    return ProxyFailed(message) if isinstance(error, httpx2.ProxyError) else Unreachable(message)
