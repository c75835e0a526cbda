"""Both transports against servers that speak HTTP well, badly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest.wire.http.direct import Direct
from toolrest.wire.http.proxied import Proxied
from toolrest.wire.http.transport import Broken, Idle, Transport, TransportError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
KINDS = (Direct, Proxied)


def make(kind: Callable[[float, float], Transport], idle: float = 5) -> Transport:
    return kind(5, idle)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    async def safely(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(safely, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


def answering(*pieces: bytes, hold: bool = False) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if hold:
            await reader.read()

    return handler


async def fetch(transport: Transport, url: str, body: bytes = b"{}") -> tuple[int, bytes]:
    async with transport.stream("POST", url, body, {"content-type": "x"}) as answer:
        return answer.status_code, b"".join([chunk async for chunk in answer.aiter_bytes()])


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
GOOD: dict[str, tuple[bytes, tuple[int, bytes]]] = {
    "chunked": (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", (200, b"abcde")),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\nx-t: 1\r\n\r\n", (200, b"a")),
    "length": (b"HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nwhy", (400, b"why")),
    "empty": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", (200, b"")),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nall of it", (200, b"all of it")),
    "old": (b"HTTP/1.0 200 OK\r\n\r\nall", (200, b"all")),
    "continue": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
        (200, b"x"),
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
}
BAD: dict[str, bytes] = {
    "nothing": b"",
    "not http": b"SSH-2.0-OpenSSH\r\n\r\n",
    "cut head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "cut length": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
    "cut chunk": CHUNKED + b"5\r\nab",
    "no last chunk": CHUNKED + b"1\r\na\r\n",
    "odd chunk": CHUNKED + b"zz\r\nab\r\n",
    "not gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GOOD)
async def test_good_answers(kind: Any, name: str) -> None:
    raw, expected = GOOD[name]
    async with serving(answering(raw)) as url:
        transport = make(kind)
        assert await fetch(transport, url) == expected
        await transport.aclose()
    async with serving(answering(*(raw[at : at + 1] for at in range(len(raw))))) as url:
        transport = make(kind)
        assert await fetch(transport, url) == expected
        await transport.aclose()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD)
async def test_bad_answers_are_broken_connections(kind: Any, name: str) -> None:
    async with serving(answering(BAD[name])) as url:
        transport = make(kind)
        with pytest.raises(Broken):
            await fetch(transport, url)
        await transport.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_silence_is_noticed(kind: Any) -> None:
    async with serving(answering(CHUNKED + b"1\r\na\r\n", hold=True)) as url:
        transport = make(kind, idle=0.2)
        with pytest.raises(Idle):
            await fetch(transport, url)
        await transport.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_is_kept_until_the_server_closes_it(kind: Any) -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(3):
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx")

    async with serving(handler) as url:
        transport = make(kind)
        for _ in range(3):
            assert await fetch(transport, url) == (200, b"x")
        assert connections == 1
        while connections == 1:
            # The server has closed; as soon as that is known here, a new connection is made.
            await asyncio.sleep(0.01)
            assert await fetch(transport, url) == (200, b"x")
        await transport.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_asked_arrives(kind: Any) -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async with serving(handler) as url:
        transport = make(kind)
        body = b"x" * 3_000_000
        await fetch(transport, f"{url}/chat?v=1&w=a%20b", body)
        await transport.aclose()
    head, _, rest = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat?v=1&w=a%20b HTTP/1.1\r\n")
    assert f"host: {url.split('/')[2]}".encode() in head.lower()
    assert rest == body


@pytest.mark.parametrize("kind", KINDS)
async def test_what_cannot_be_a_header_is_not_repeated(kind: Any) -> None:
    """The library's own words had the whole value, which may be a key."""
    wrong = ({"x": "a\r\nhost: key"}, {"x": "key\n"}, {"x": "key\0"}, {"a b": "key"})
    async with serving(answering()) as url:
        for headers in wrong:
            transport = make(kind)
            with pytest.raises(ValueError, match=r"line break|not valid in HTTP") as caught:
                async with transport.stream("POST", url, b"", headers):
                    pass
            assert "key" not in str(caught.value)
            await transport.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_letters_that_are_not_ascii_are_sent(kind: Any) -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with serving(handler) as url:
        transport = make(kind)
        async with transport.stream("POST", url, b"", {"x": "sécret€"}) as answer:
            assert answer.status_code == 200
        await transport.aclose()
    assert b"x: s\xe9cret?\r\n" in seen[0]


@pytest.mark.parametrize("closes", [False, True])
async def test_a_refusal_of_a_request_that_is_too_large_to_be_read(closes: bool) -> None:
    """The answer used to be looked for only when everything was sent, which never came."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await writer.drain()
        if not closes:
            await asyncio.Event().wait()

    async with serving(handler) as url:
        transport = make(Direct)
        assert await fetch(transport, url, b"x" * 20_000_000) == (413, b"big")
        await transport.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_before_the_body_was_read(kind: Any) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await writer.drain()
        await reader.read()

    async with serving(handler) as url:
        transport = make(kind)
        assert await fetch(transport, url, b"x" * 200_000) == (413, b"big")
        await transport.aclose()


@given(raw=st.binary(max_size=60), opened=st.booleans())
@settings(max_examples=60)
def test_any_bytes_are_an_answer_or_an_error(raw: bytes, opened: bool) -> None:
    async def check() -> None:
        async with serving(answering(CHUNKED + raw if opened else raw)) as url:
            transport = Direct(5, 5)
            async with asyncio.timeout(60):
                with suppress(TransportError):
                    await fetch(transport, url)
            await transport.aclose()

    asyncio.run(check())
