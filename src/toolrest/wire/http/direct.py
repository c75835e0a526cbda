"""The direct transport: HTTP/1.1 without a proxy, by h11 on asyncio.

A session asks the same server hundreds of times, one request after the other, and the first of
them should not wait for a large library to load. Proxies are left to httpx2, see
`toolrest.wire.http.proxied`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import zlib
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import h11

from toolrest.urls import HttpUrl, parse_url
from toolrest.wire.http.transport import BAD_HEADER, Broken, Idle, Unreachable, header_lines

_LONGEST_HEAD: Final = 1 << 18
_PIECE: Final = 1 << 16


class Direct:
    """The connections to one server. A connection whose response was read to its end is kept."""

    def __init__(self, connect_timeout: float, idle_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._kept: list[_Connection] = []
        self._context: ssl.SSLContext | None = None

    async def aclose(self) -> None:
        """Close the connections that are kept."""
        while self._kept:
            self._kept.pop().close()

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[DirectResponse, None]:
        """Send a request, and read the response as it comes."""
        parts = parse_url(url)
        response = await self._ask(parts, _request(method, parts, body, headers), body)
        connection = response.connection
        try:
            yield response
        finally:
            if connection.can_be_used_again():
                self._kept.append(connection)
            else:
                connection.close()

    async def _ask(self, url: HttpUrl, request: h11.Request, body: bytes) -> DirectResponse:
        while self._kept:
            connection = self._kept.pop()
            if connection.origin != url.origin or connection.is_gone:
                connection.close()
                continue
            try:
                return await connection.ask(request, body)
            except _Unanswered:
                continue  # the server had closed it meanwhile: that request was never read
        connection = await self._connect(url)
        try:
            return await connection.ask(request, body)
        except _Unanswered:
            raise Broken("the server closed the connection without an answer") from None

    async def _connect(self, url: HttpUrl) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(
                    url.host, url.port, ssl=self._tls() if url.scheme == "https" else None
                )
        except TimeoutError:
            raise Unreachable(f"no connection within {self._connect_timeout:g} s") from None
        except OSError as error:
            raise Unreachable(str(error)) from None
        return _Connection(reader, writer, url.origin, self._idle_timeout)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = _tls_context()
        return self._context


class _Unanswered(Exception):
    """The connection ended before a single byte of the response."""


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        origin: str,
        idle_timeout: float,
    ) -> None:
        self.origin = origin
        self._reader = reader
        self._writer = writer
        self._idle = idle_timeout
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)

    @property
    def is_gone(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def can_be_used_again(self) -> bool:
        """Whether the response was read to its end; then the connection is made ready for more."""
        http = self._http
        if (http.our_state, http.their_state) != (h11.DONE, h11.DONE) or http.trailing_data[0]:
            return False
        if self._writer.transport.get_write_buffer_size():
            return False  # answered before the whole request was sent
        http.start_next_cycle()
        return True

    def close(self) -> None:
        self._writer.close()

    async def ask(self, request: h11.Request, body: bytes) -> DirectResponse:
        """Send a request and read the head of its response; closes the connection on failure."""
        try:
            return DirectResponse(self, await self._exchange(request, body))
        except BaseException:
            self.close()
            raise

    async def _exchange(self, request: h11.Request, body: bytes) -> h11.Response:
        send = self._http.send
        try:
            self._writer.write(send(request) + send(h11.Data(data=body)) + send(h11.EndOfMessage()))
            # Not drained first: a server may refuse a large request without reading it.
            async with asyncio.timeout(self._idle):
                while not isinstance(event := await self._next_event(), h11.Response):
                    pass  # 100 Continue and its like
                return event
        except TimeoutError:
            raise Idle from None
        except h11.RemoteProtocolError as error:
            raise self._broken_head(error) from None
        except ConnectionError:
            raise _Unanswered from None
        except OSError as error:
            raise Broken(str(error)) from None

    def _broken_head(self, error: h11.RemoteProtocolError) -> Exception:
        unread, ended = self._http.trailing_data
        if ended:
            return Broken("the answer ended in its head") if unread else _Unanswered()
        if error.error_status_hint == 431:
            return Broken("the head of the answer is too long")
        return Broken("the server does not speak HTTP/1.1")

    async def read(self) -> bytes | None:
        """The next piece of the body; None at its end."""
        try:
            async with asyncio.timeout(self._idle):
                event = await self._next_event()
        except TimeoutError:
            raise Idle from None
        except h11.RemoteProtocolError:
            ended = self._http.trailing_data[1]
            problem = "ended before it was complete" if ended else "is cut in an unknown way"
            raise Broken(f"the answer {problem}") from None
        except OSError as error:
            raise Broken(str(error)) from None
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_PIECE))
        return event


class DirectResponse:
    """A status, headers in lower case, and the body as it comes."""

    def __init__(self, connection: _Connection, head: h11.Response) -> None:
        self.connection = connection
        self.status_code = head.status_code
        self.headers: dict[str, str] = {}
        for name, value in head.headers:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    async def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        """The body, decompressed."""
        unpacker = _unpacker(self.headers.get("content-encoding", "").lower())
        while (piece := await self.connection.read()) is not None:
            if data := piece if unpacker is None else unpacker.feed(piece):
                yield data
        if unpacker is not None and not unpacker.is_whole:
            raise Broken("the answer ended before it was complete")


def _request(method: str, url: HttpUrl, body: bytes, headers: Mapping[str, str]) -> h11.Request:
    sent = {
        "host": url.authority,
        "accept-encoding": "identity",
        **{name.lower(): value for name, value in headers.items()},
        "content-length": str(len(body)),
    }
    if url.user is not None:
        user = url.user.reveal().encode()
        sent.setdefault("authorization", f"Basic {b64encode(user).decode()}")
    try:
        return h11.Request(method=method, target=url.target, headers=header_lines(sent))
    except h11.LocalProtocolError:
        raise ValueError(BAD_HEADER) from None


def _unpacker(encoding: str) -> _Unpacker | None:
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Broken(f"the answer is packed as {encoding!r}, which was not asked for")
    return _Unpacker()


class _Unpacker:
    """Packed pieces to plain ones; some servers pack each piece by itself."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._part = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        self.is_whole = False

    def feed(self, piece: bytes) -> bytes:
        data = bytearray()
        try:
            while piece:
                if self.is_whole:
                    self._begin()
                data += self._part.decompress(piece)
                self.is_whole, piece = self._part.eof, self._part.unused_data
        except zlib.error as error:
            raise Broken(f"the answer cannot be unpacked: {error}") from None
        return bytes(data)


def _tls_context() -> ssl.SSLContext:
    """A TLS context with SSL_CERT_FILE and SSL_CERT_DIR, else with the system's certificates."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        context = ssl.create_default_context()
    else:
        import truststore  # for https only

        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    return context
