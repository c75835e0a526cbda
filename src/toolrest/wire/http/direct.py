"""A request to a server that can be reached without a proxy: HTTP/1.1 on asyncio, nothing more.

A session asks the same server hundreds of times, one request after the other, and the first of
them should not wait for a large library to load. What this cannot do (proxies) goes through
httpx2, see `toolrest.wire.http.transport`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from toolrest.wire.http.transport import Broken, Idle, Unreachable

if TYPE_CHECKING:
    import ssl

_LIMIT: Final = 1 << 18
_PIECE: Final = 1 << 16
_SAFE: Final = "/?:@!$&'()*+,;=%-._~[]"
_BAD_HEADER: Final = re.compile(r"[\r\n\0]")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |$)")


class Place(NamedTuple):
    """Where a URL points to."""

    host: str
    port: int
    secure: bool
    target: str
    name: str
    """For the Host header."""
    user: str | None


def place_of(url: str) -> Place:
    """The parts of a URL that matter; ValueError when it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http:// or https:// address")
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    host = parts.hostname
    name = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
    if parts.port is not None:
        name += f":{port}"
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE)
    user = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Place(host, port, secure, target, name, user)


class Direct:
    """The connections to one server. A connection whose answer was read to its end is kept."""

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
    ) -> AsyncGenerator[DirectAnswer, None]:
        """Ask, and read the answer as it comes."""
        place = place_of(url)
        data = _request(method, place, body, headers)
        answer = await self._ask(place, data)
        try:
            yield answer
        finally:
            if answer.is_whole and answer.keeps:
                self._kept.append(answer.connection)
            else:
                answer.connection.close()

    async def _ask(self, place: Place, data: bytes) -> DirectAnswer:
        where = (place.host, place.port, place.secure)
        while self._kept:
            connection = self._kept.pop()
            if connection.where != where or connection.is_gone:
                connection.close()
                continue
            try:
                return await self._exchange(connection, data)
            except _Unanswered:
                continue  # the server had closed it meanwhile: that request was never read
        connection = await self._connect(place, where)
        try:
            return await self._exchange(connection, data)
        except _Unanswered:
            raise Broken("the server closed the connection without an answer") from None

    async def _connect(self, place: Place, where: tuple[str, int, bool]) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(
                    place.host,
                    place.port,
                    limit=_LIMIT,
                    ssl=self._tls() if place.secure else None,
                )
        except TimeoutError:
            raise Unreachable(f"no connection within {self._connect_timeout:g} s") from None
        except OSError as error:
            raise Unreachable(str(error)) from None
        return _Connection(reader, writer, where, self._idle_timeout)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = _tls_context()
        return self._context

    async def _exchange(self, connection: _Connection, data: bytes) -> DirectAnswer:
        try:
            answer = await connection.ask(data)
        except BaseException:
            connection.close()
            raise
        return answer


class _Unanswered(Exception):
    """The connection ended before a single byte of the answer."""


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        where: tuple[str, int, bool],
        idle_timeout: float,
    ) -> None:
        self.reader = reader
        self.where = where
        self._writer = writer
        self._idle = idle_timeout

    @property
    def is_gone(self) -> bool:
        return self.reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def ask(self, data: bytes) -> DirectAnswer:
        try:
            self._writer.write(data)
            async with asyncio.timeout(self._idle):
                await self._writer.drain()
                head = await self._head()
        except TimeoutError:
            raise Idle from None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Broken("the answer ended in its head") from None
            raise _Unanswered from None
        except asyncio.LimitOverrunError:
            raise Broken("the head of the answer is too long") from None
        except ConnectionError:
            raise _Unanswered from None
        except OSError as error:
            raise Broken(str(error)) from None
        return DirectAnswer(self, head)

    async def _head(self) -> bytes:
        while True:
            head = await self.reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 1"):  # 100 Continue and its like
                return head

    async def more(self, most: int) -> bytes:
        """What comes next, at most so many bytes; empty at the end."""
        return await self._read(self.reader.read(most))

    async def line(self) -> bytes:
        return await self._read(self.reader.readuntil(b"\n"))

    async def _read(self, reading: Any) -> bytes:
        try:
            async with asyncio.timeout(self._idle):
                found: bytes = await reading
        except TimeoutError:
            raise Idle from None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise Broken("the answer ended before it was complete") from None
        except OSError as error:
            raise Broken(str(error)) from None
        return found


class DirectAnswer:
    """A status, headers in lower case, and the body as it comes."""

    def __init__(self, connection: _Connection, head: bytes) -> None:
        self.connection = connection
        lines = head.split(b"\r\n")
        match = _STATUS.match(lines[0])
        if match is None:
            raise Broken("the server does not speak HTTP/1.1")
        self.status_code = int(match[1])
        self.headers = _headers(lines[1:])
        self.is_whole = False
        self.keeps = self.headers.get("connection", "").lower() != "close" and lines[0].startswith(
            b"HTTP/1.1"
        )

    async def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        """The body, decoded."""
        decoder = _decoder(self.headers.get("content-encoding", "").lower())
        async for piece in self._raw():
            data = piece if decoder is None else _unpacked(decoder, piece)
            if data:
                yield data
        self.is_whole = True

    async def _raw(self) -> AsyncGenerator[bytes, None]:
        if self.status_code in (204, 304):
            return
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            async for piece in self._chunked():
                yield piece
            return
        length = self.headers.get("content-length", "")
        if length.isdigit():
            async for piece in self._exactly(int(length)):
                yield piece
            return
        self.keeps = False
        while piece := await self.connection.more(_PIECE):
            yield piece

    async def _exactly(self, left: int) -> AsyncGenerator[bytes, None]:
        while left > 0:
            piece = await self.connection.more(min(left, _PIECE))
            if not piece:
                raise Broken("the answer ended before it was complete")
            left -= len(piece)
            yield piece

    async def _chunked(self) -> AsyncGenerator[bytes, None]:
        while True:
            try:
                size = int((await self.connection.line()).split(b";")[0], 16)
            except ValueError:
                raise Broken("the answer is cut in an unknown way") from None
            if size < 0:
                raise Broken("the answer is cut in an unknown way")
            async for piece in self._exactly(size):
                yield piece
            if size == 0:
                while (await self.connection.line()).strip():
                    pass  # trailers
                return
            await self.connection.line()


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            key = name.strip().lower()
            text = value.strip()
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _request(method: str, place: Place, body: bytes, headers: Mapping[str, str]) -> bytes:
    sent = {
        "host": place.name,
        "accept-encoding": "identity",
        "content-length": str(len(body)),
        **{name.lower(): value for name, value in headers.items()},
    }
    if place.user is not None and "authorization" not in sent:
        from base64 import b64encode

        sent["authorization"] = f"Basic {b64encode(place.user.encode()).decode()}"
    for name, value in sent.items():
        if _BAD_HEADER.search(name + value):
            raise ValueError(f"the header {name!r} has a line break in it")
    lines = [f"{method} {place.target} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body


def _decoder(encoding: str) -> Any:
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "deflate"):
        raise Broken(f"the answer is packed as {encoding!r}, which was not asked for")
    import zlib

    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)


def _unpacked(decoder: Any, piece: bytes) -> bytes:
    import zlib

    try:
        data: bytes = decoder.decompress(piece)
    except zlib.error as error:
        raise Broken(f"the answer cannot be unpacked: {error}") from None
    return data


def _tls_context() -> ssl.SSLContext:
    """The system's certificates (or SSL_CERT_FILE's), else those that come with httpx2."""
    import ssl

    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None:
        import certifi

        context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context
