"""How bytes get to a server and back: what `Http` needs, whoever provides it.

A request through a proxy, by httpx2: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import httpx2


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


class Proxied:
    """A pool of connections that goes where the environment says."""

    def __init__(self, connect_timeout: float, idle_timeout: float) -> None:
        import httpx2

        timeout = httpx2.Timeout(None, connect=connect_timeout, read=idle_timeout)
        self._client = httpx2.AsyncClient(timeout=timeout)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[Answer, None]:
        """Ask, and read the answer as it comes."""
        import httpx2

        try:
            request = self._client.stream(method, url, content=body, headers=headers)
            async with request as response:
                yield cast(Answer, response)
        except httpx2.HTTPError as error:
            raise _translated(error) from None
        except httpx2.InvalidURL as error:
            raise ValueError(str(error)) from None


def _translated(error: httpx2.HTTPError) -> TransportError:
    import httpx2

    words = str(error) or type(error).__name__
    if isinstance(error, httpx2.ReadTimeout):
        return Idle()
    if isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.DecodingError):
        return Broken(words)
    return ProxyFailed(words) if isinstance(error, httpx2.ProxyError) else Unreachable(words)
