"""Requests to one endpoint, over kept connections; repeated when no reply had begun."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeAlias

from msgspec import Struct

from toolrest.wire.http.error_bodies import error_of_status
from toolrest.wire.http.shared_pace import VARIABLE as PACE_VARIABLE
from toolrest.wire.http.shared_pace import SharedPace
from toolrest.wire.http.transport import (
    Broken,
    HttpResponse,
    Idle,
    ProxyFailed,
    Transport,
    TransportError,
)
from toolrest.wire.model import LONGEST_WAIT, ModelError, Retrying, retry_delay
from toolrest.wire.provider import Provider

_LONGEST_ERROR: Final = 64 << 10
_LONGEST_ANSWER: Final = 64 << 20
_REFUSAL_WAIT: Final = 10.0
"""Seconds for the words of a refusal, whose status is known already."""
_VERSION: Final = re.compile(r"/v\d|/api\b|/openai\b")
_EVENT_BEGINS: Final = b":deir\xef"
"""The first byte of a comment, `data`, `event`, `id`, `retry` or a byte order mark."""
_PROXY_HINT: Final = "Check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY."
# Some servers keep the connection open after their last event: the longest wait for its end.
_GOODBYE: Final = 0.02


class Opened(Struct):
    """The start of a stream; `headers` are in lower case."""

    headers: Mapping[str, str]

    def is_events(self, start: bytes) -> bool:
        """Whether a body with this start is a stream of events, and not one JSON document.

        Some servers name the wrong type, or none.
        """
        if "json" in self.headers.get("content-type", "").split(";")[0]:
            return start[:1] in _EVENT_BEGINS and not start.startswith(b"\xef\xbb\xbf{")
        return not start.startswith((b"{", b"\xef\xbb\xbf{"))


Part: TypeAlias = "Retrying | Opened | bytes"


class Http:
    """The connection pool of one provider. Nothing is opened or imported before first use."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._transport: Transport | None = None
        folder = os.environ.get(PACE_VARIABLE)
        self._pace = SharedPace(folder, provider.base_url.reveal()) if folder else None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            await transport.aclose()

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str], retries: int
    ) -> AsyncGenerator[Part, None]:
        """Send a request: `Opened`, then the reply's bytes; `Retrying` before each repetition.

        5xx and failed connections are repeated while no reply has begun; the caller decides about
        all other errors.
        """
        attempt = 0
        while True:
            begun = False
            try:
                async with aclosing(self._attempt(path, body, headers)) as parts:
                    async for part in parts:
                        begun = True
                        yield part
                return
            except ModelError as error:
                attempt += 1
                if begun or attempt > retries or not _repeatable(error):
                    raise
                delay = retry_delay(attempt, error)
                yield Retrying(attempt, retries, delay, error.plain, error.kind)
                await asyncio.sleep(delay)

    async def _attempt(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[Opened | bytes, None]:
        url = self.provider.url(path)
        if self._pace is not None:
            await self._pace.slot()
        try:
            async with self._open().stream("POST", url, body, headers) as response:
                await self._check(path, response)
                if self._pace is not None:
                    self._pace.accepted()
                if response.headers.get("content-type", "").startswith("text/html"):
                    where = self.provider.shown_url(path)
                    message = f"{where} answered with a web page, not as a model's server"
                    hints = _address_hints(self.provider)
                    raise ModelError("not_found", message, retryable=False, hints=hints)
                yield Opened(response.headers)
                async with aclosing(response.aiter_bytes()) as chunks:
                    async for chunk in chunks:
                        yield chunk
        except TransportError as error:
            raise self._unreachable(path, error) from None
        except ValueError as error:
            raise self._unusable(path, error) from None

    async def _check(self, path: str, response: HttpResponse) -> None:
        if response.status_code < 300:
            return
        body = await _read_error(response)
        provider = self.provider
        error = error_of_status(
            response.status_code,
            response.headers,
            body,
            provider.shown_url(path),
            provider.wire,
        )
        error.args = (provider.without_secrets(error.plain),)
        if error.status == 407:
            error.hints = (_PROXY_HINT,)
        elif error.kind == "auth":
            error.hints = (_key_hint(provider),)
        elif error.status in (404, 405):
            error.hints = _address_hints(provider)
        error.message = str(error)
        if self._pace is not None and error.kind == "rate_limit":
            self._pace.refused(error.retry_after)
        raise error

    def _unreachable(self, path: str, error: TransportError) -> ModelError:
        where = self.provider.shown_url(path)
        problem = str(error) or type(error).__name__
        if isinstance(error, Idle):
            idle = self.provider.idle_timeout
            return ModelError("stream", f"idle timeout: nothing from {where} for {idle:g} s")
        if isinstance(error, Broken):
            return ModelError("stream", f"the connection to {where} broke: {problem}")
        hint = f"Check base_url of the provider {self.provider.id!r} and that the server is up."
        hints = (hint, _PROXY_HINT) if isinstance(error, ProxyFailed) else (hint,)
        return ModelError("unreachable", f"cannot reach {where}: {problem}", hints=hints)

    def _unusable(self, path: str, error: ValueError) -> ModelError:
        """An address, header or proxy that no request can be made with."""
        where = self.provider.shown_url(path)
        return ModelError("unreachable", f"{where}: {error}", retryable=False)

    async def get_json(self, path: str, headers: Mapping[str, str]) -> Any:
        """Get one small JSON document."""
        try:
            request = self._open().stream("GET", self.provider.url(path), b"", headers)
            async with request as response:
                await self._check(path, response)
                body = await _read(response, _LONGEST_ANSWER)
        except TransportError as error:
            raise self._unreachable(path, error) from None
        except ValueError as error:
            raise self._unusable(path, error) from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            where = self.provider.shown_url(path)
            raise ModelError("server", f"{where} did not answer with JSON") from None

    def _open(self) -> Transport:
        if self._transport is None:
            provider = self.provider
            self._transport = transport_for(provider.connect_timeout, provider.idle_timeout)
        return self._transport


def transport_for(connect_timeout: float, idle_timeout: float) -> Transport:
    """The direct transport, unless the environment names a proxy."""
    # Each loads a library of its own (h11, httpx2), and a session needs one of them.
    if _has_proxy():
        from toolrest.wire.http.proxied import Proxied

        return Proxied(connect_timeout, idle_timeout)
    from toolrest.wire.http.direct import Direct

    return Direct(connect_timeout, idle_timeout)


def _has_proxy() -> bool:
    if sys.platform != "linux":
        from urllib.request import getproxies  # the system's settings count there

        return bool(getproxies().keys() & {"http", "https", "all"})
    names = {name.lower() for name, value in os.environ.items() if value}
    return bool(names & {"http_proxy", "https_proxy", "all_proxy"})


async def drain(parts: AsyncIterator[Part]) -> None:
    """Read the end of a stream whose last event was seen, so that its connection can be kept."""
    try:
        async with asyncio.timeout(_GOODBYE):
            async for _ in parts:
                pass
    except (TimeoutError, ModelError):
        pass


def _repeatable(error: ModelError) -> bool:
    if error.retry_after is not None and error.retry_after > LONGEST_WAIT:
        return False
    if error.status is None:
        return error.retryable and error.kind in ("unreachable", "stream")
    return error.status >= 500 and error.kind in ("server", "overloaded")


def _key_hint(provider: Provider) -> str:
    if provider.key_variable:
        return f"The key came from the variable {provider.key_variable}."
    if provider.key:
        return f"The key came from the settings of the provider {provider.id!r}."
    return f"No key was sent; set env_key for the provider {provider.id!r}."


def _address_hints(provider: Provider) -> tuple[str, ...]:
    """A hint at the usual mistake in an address: its version is missing."""
    if _VERSION.search(provider.base_url.reveal()):
        return ()
    return (
        f"base_url of the provider {provider.id!r} has no version; most servers want "
        f"{provider.shown_url('v1')}.",
    )


async def _read(response: HttpResponse, most: int, body: bytearray | None = None) -> bytes:
    body = bytearray() if body is None else body
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) >= most:
                break
    return bytes(body[:most])


async def _read_error(response: HttpResponse) -> bytes:
    """What can be read of a refusal's body: its status counts however its words end."""
    body = bytearray()
    try:
        async with asyncio.timeout(_REFUSAL_WAIT):
            return await _read(response, _LONGEST_ERROR, body)
    except (TimeoutError, TransportError):
        return bytes(body[:_LONGEST_ERROR])
