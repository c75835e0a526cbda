"""The interface of a transport, and the errors that every transport raises."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

BAD_HEADER: Final = "a header of the request is not valid in HTTP"
"""A library's own message would repeat the value, which may be a key."""
_BREAK: Final = re.compile(r"[\r\n\0]")


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


def header_lines(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as they are sent; ValueError for one that could carry another."""
    for name, value in headers.items():
        if _BREAK.search(name + value):
            raise ValueError(f"the header {name!r} has a line break in it")
    return [
        (name.encode("latin-1", "replace"), value.strip(" \t").encode("latin-1", "replace"))
        for name, value in headers.items()
    ]
