"""The interface of a transport, and the errors that every transport raises."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class TransportError(Exception):
    """A request that failed below HTTP."""


class Unreachable(TransportError):
    """The server could not be connected to."""


class ProxyFailed(Unreachable):
    """The proxy refused the request, or what it stands before could not be reached."""


class Broken(TransportError):
    """The connection ended in the middle."""


class Idle(TransportError):
    """No byte came within the idle time limit."""


class HttpResponse(Protocol):
    """A response that has begun; header names are in lower case."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes."""


class Transport(Protocol):
    """A transport of requests, one at a time or several, over connections that it keeps."""

    def stream(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a request; TransportError when it fails, ValueError when it cannot be one."""

    async def aclose(self) -> None:
        """Close the connections."""
