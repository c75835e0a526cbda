"""The direct transport: odd servers, connections that are kept, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.wire.http.direct import Direct
from toolrest.wire.http.endpoint import transport_for
from toolrest.wire.http.transport import Broken, Idle, TransportError, Unreachable

# Without the time of day: parameters must be the same in every worker.
HE, LLO = (gzip.compress(text, mtime=0) for text in (b"he", b"llo"))
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def saying(*answers: bytes, then_close: bool = True) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        if not then_close:
            await reader.read()

    return handler


async def read(direct: Direct, url: str) -> tuple[int, bytes]:
    async with direct.stream("GET", url, b"", {}) as answer:
        return answer.status_code, b"".join([piece async for piece in answer.aiter_bytes()])


async def once(url: str, idle: float = 5) -> tuple[int, bytes]:
    direct = Direct(5, idle)
    try:
        return await read(direct, url)
    finally:
        await direct.aclose()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nA: b\r\n\r\n",
        OK + b"\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length:5\r\n\r\nhello",
        OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello", mtime=0),
        OK + b"Content-Encoding: x-gzip\r\n\r\n" + HE + LLO,
    ],
)
async def test_answers_in_every_form(answer: bytes) -> None:
    async with serving(saying(answer)) as url:
        assert await once(url) == (200, b"hello")


ENDED = "the answer ended before it was complete"
UNKNOWN = "the answer is cut in an unknown way"
NOT_HTTP = "the server does not speak HTTP/1.1"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "the server closed the connection without an answer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "the server closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", NOT_HTTP),
        (b"HTTP/2 200 OK\r\n\r\n", NOT_HTTP),
        (OK + b"Content-Length: five\r\n\r\nhello", NOT_HTTP),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", NOT_HTTP),
        (OK, "the answer ended in its head"),
        (OK + b"Content-Length: 9\r\n\r\nhello", ENDED),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", ENDED),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", UNKNOWN),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", UNKNOWN),
        (OK + b"Content-Encoding: br\r\n\r\nhello", "packed as 'br', which was not asked for"),
        (OK + b"Content-Encoding: gzip\r\n\r\nhello", "the answer cannot be unpacked"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello", mtime=0)[:-9], ENDED),
        (OK + b"a: " + b"b" * 400_000 + b"\r\n\r\n", "the head of the answer is too long"),
    ],
)
async def test_what_is_broken_is_an_error_and_never_half_an_answer(
    answer: bytes, message: str
) -> None:
    async with serving(saying(answer)) as url:
        with pytest.raises(Broken, match=re.escape(message)):
            await once(url)


async def test_a_connection_is_used_again() -> None:
    opened = 0
    answer = OK + b"Content-Length: 2\r\n\r\nok"

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await saying(answer, answer, answer)(reader, writer)

    async with serving(handler) as url:
        direct = Direct(5, 5)
        for _ in range(3):
            assert await read(direct, url) == (200, b"ok")
        assert opened == 1
        # The server has closed it by now: the next one begins anew.
        assert await read(direct, url) == (200, b"ok")
        assert opened == 2
        await direct.aclose()


async def test_an_answer_that_was_not_read_whole_ends_its_connection() -> None:
    opened = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await saying(OK + b"Content-Length: 2\r\n\r\nok", then_close=False)(reader, writer)

    async with serving(handler) as url:
        direct = Direct(5, 5)
        for _ in range(2):
            async with direct.stream("GET", url, b"", {}) as answer:
                assert answer.status_code == 200
        assert opened == 2


async def test_what_follows_an_answer_is_not_taken_for_the_next_one() -> None:
    first = OK + b"Content-Length: 2\r\n\r\nok"
    forged = OK + b"Content-Length: 3\r\n\r\nbad"
    async with serving(saying(first + forged, then_close=False)) as url:
        direct = Direct(5, 5)
        assert [await read(direct, url) for _ in range(2)] == [(200, b"ok")] * 2
        await direct.aclose()


async def test_silence_and_absence_are_told_apart() -> None:
    async with serving(saying(OK + b"Content-Length: 9\r\n\r\nhel", then_close=False)) as url:
        with pytest.raises(Idle):
            await once(url, 0.1)
    with pytest.raises(Unreachable):
        await once("http://127.0.0.1:9/")


async def test_headers_cannot_carry_another_request() -> None:
    for headers in ({"x": "a\r\nhost: b"}, {"x\n": "a"}):
        with pytest.raises(ValueError, match="line break"):
            async with Direct(5, 5).stream("GET", "http://127.0.0.1:9/", b"", headers):
                pass
    with pytest.raises(ValueError, match="not valid in HTTP") as refused:
        async with Direct(5, 5).stream("GET", "http://127.0.0.1:9/", b"", {"a b": "key"}):
            pass
    assert "key" not in str(refused.value)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_is_left_to_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(known, raising=False)
        monkeypatch.delenv(known.lower(), raising=False)
    assert isinstance(transport_for(1, 1), Direct)
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    transport: Any = transport_for(1, 1)
    assert not isinstance(transport, Direct)
    with pytest.raises(TransportError):
        async with transport.stream("GET", "http://example.invalid/", b"", {}):
            pass
    await transport.aclose()


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=8))
def test_any_bytes_are_an_answer_or_an_error(data: bytes, cuts: list[int]) -> None:
    async def check() -> None:
        async with serving(saying(OK + b"Transfer-Encoding: chunked\r\n\r\n" + data)) as url:
            with suppress(TransportError):
                await once(url)

    asyncio.run(check())
