"""The proxy lets through what is listed, and tells what it turns away."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest.sandbox.network.proxy import NetworkProxy
from toolrest.sandbox.network.tunnel import Blocked

NAMES = {"ok.test": ["127.0.0.1"], "sub.ok.test": ["127.0.0.1"], "evil.test": ["127.0.0.1"]}


class Site:
    """A server that answers every connection and remembers what it was sent."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen.append(await reader.read(65536))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


class Running:
    """A proxy, what it asked the resolver, and what it blocked."""

    def __init__(self, path: str, allowed: Sequence[str]) -> None:
        self.asked: list[str] = []
        self.blocked: list[Blocked] = []
        self.names = dict(NAMES)
        self.proxy = NetworkProxy(
            allowed, path, on_blocked=self.blocked.append, resolve=self.resolve
        )

    async def resolve(self, name: str, port: int) -> list[str]:
        self.asked.append(name)
        if name not in self.names:
            raise socket.gaierror(-2, "not known")
        return self.names[name]

    async def ask(self, data: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.proxy.socket_path)
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
        return answer

    async def socks(self, host: bytes, port: int, command: int = 1) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_unix_connection(self.proxy.socket_path)
        writer.write(b"\x05\x01\x00")
        assert await reader.readexactly(2) == b"\x05\x00"
        name = bytes([len(host)]) + host
        writer.write(bytes([5, command, 0, 3]) + name + port.to_bytes(2, "big"))
        code = (await reader.readexactly(10))[1]
        rest = b""
        if code == 0:
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            rest = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return code, rest


@asynccontextmanager
async def running(path: Path, *allowed: str) -> AsyncIterator[Running]:
    made = Running(str(path / "p.sock"), allowed)
    await made.proxy.start()
    try:
        yield made
    finally:
        await made.proxy.aclose()


def get(host: str, port: int, extra: str = "") -> bytes:
    return f"GET http://{host}:{port}/x?y#z HTTP/1.1\r\nHost: lie.test\r\n{extra}\r\n".encode()


LOCAL = "127.0.0.0/8"


async def test_http_to_a_listed_host(tmp_path: Path, site: Site) -> None:
    async with running(tmp_path, "ok.test", LOCAL) as r:
        answer = await r.ask(get("ok.test", site.port, "Proxy-Connection: x\r\nA: b\r\n"))
    assert answer.endswith(b"hi")
    (sent,) = site.seen
    assert sent.startswith(b"GET /x?y HTTP/1.1\r\n")
    assert f"Host: ok.test:{site.port}\r\n".encode() in sent
    assert b"lie.test" not in sent
    assert b"Proxy-" not in sent
    assert b"A: b" in sent
    assert r.asked == ["ok.test"]
    assert r.blocked == []


async def test_connect_to_a_listed_host(tmp_path: Path, site: Site) -> None:
    async with running(tmp_path, "*.ok.test", LOCAL) as r:
        head = f"CONNECT sub.ok.test:{site.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        reader, writer = await asyncio.open_unix_connection(r.proxy.socket_path)
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.write(b"anything at all")
        assert (await reader.read()).endswith(b"hi")
        writer.close()
    assert site.seen == [b"anything at all"]


async def test_socks_to_a_listed_host(tmp_path: Path, site: Site) -> None:
    async with running(tmp_path, "ok.test", LOCAL) as r:
        code, answer = await r.socks(b"ok.test", site.port)
    assert (code, answer[-2:]) == (0, b"hi")


@pytest.mark.parametrize("host", ["evil.test", "ok.test.evil.test", "notok.test", "127.0.0.2"])
async def test_others_are_blocked_before_any_name_is_resolved(
    tmp_path: Path, site: Site, host: str
) -> None:
    async with running(tmp_path, "ok.test", "127.0.0.1") as r:
        http = await r.ask(get(host, site.port))
        tunnel = await r.ask(f"CONNECT {host}:{site.port} HTTP/1.1\r\n\r\n".encode())
        code, _ = await r.socks(host.encode(), site.port)
    assert http.startswith(b"HTTP/1.1 403")
    assert b"x-proxy-error: blocked-by-allowlist" in http
    assert tunnel.startswith(b"HTTP/1.1 403")
    assert code == 2
    assert r.asked == []
    assert site.seen == []
    assert r.blocked == [
        Blocked(host, site.port, protocol, "not_allowed")
        for protocol in ("http", "connect", "socks5")
    ]


async def test_an_empty_list_blocks_everything(tmp_path: Path, site: Site) -> None:
    async with running(tmp_path) as r:
        assert (await r.ask(get("ok.test", site.port))).startswith(b"HTTP/1.1 403")
        assert (await r.socks(b"ok.test", site.port))[0] == 2
    assert site.seen == []


async def test_a_listed_name_that_leads_home_is_blocked(tmp_path: Path, site: Site) -> None:
    async with running(tmp_path, "ok.test") as r:
        answer = await r.ask(get("ok.test", site.port))
    assert answer.startswith(b"HTTP/1.1 403")
    assert r.blocked == [Blocked("ok.test", site.port, "http", "not_allowed_local")]
    assert site.seen == []


async def test_a_name_is_resolved_once_and_that_address_is_used(tmp_path: Path, site: Site) -> None:
    async with running(tmp_path, "ok.test", LOCAL) as r:
        r.names["ok.test"] = ["10.1.2.3", "127.0.0.1"]  # the first one is not listed
        assert (await r.ask(get("ok.test", site.port))).endswith(b"hi")
    assert r.asked == ["ok.test"]


async def test_a_port_can_be_part_of_an_entry(tmp_path: Path, site: Site) -> None:
    async with running(tmp_path, "ok.test:1", LOCAL) as r:
        assert (await r.ask(get("ok.test", site.port))).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("host", [b"evil.test\0.ok.test", b"evil.test ok.test", b"", b"a..ok.test"])
async def test_hosts_in_disguise(tmp_path: Path, site: Site, host: bytes) -> None:
    async with running(tmp_path, "ok.test", "*.ok.test", LOCAL) as r:
        assert (await r.socks(host, site.port))[0] == 2
    assert r.asked == []
    assert [blocked.reason for blocked in r.blocked] == ["invalid_host"]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
        b"GET https://ok.test/ HTTP/1.1\r\n\r\n",
        b"GET http://user@ok.test/ HTTP/1.1\r\n\r\n",
        b"CONNECT ok.test HTTP/1.1\r\n\r\n",
        b"CONNECT ok.test:99999 HTTP/1.1\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\nA: b\nB: c\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\n folded\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\nHost : x\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_requests_that_a_proxy_does_not_take(tmp_path: Path, request_: bytes) -> None:
    async with running(tmp_path, "ok.test", LOCAL) as r:
        assert (await r.ask(request_)).startswith(b"HTTP/1.1 400")
    assert r.asked == []


async def test_an_endless_header_is_cut_off(tmp_path: Path) -> None:
    async with running(tmp_path, "ok.test") as r:
        answer = await r.ask(b"GET http://ok.test/ HTTP/1.1\r\nA: " + b"x" * 200_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431") or answer == b""


async def test_only_connect_of_socks(tmp_path: Path) -> None:
    async with running(tmp_path, "ok.test", LOCAL) as r:
        assert (await r.socks(b"ok.test", 80, command=3))[0] == 7
        assert await r.ask(b"\x05\x01\x02") == b"\x05\xff"


async def test_unreachable_is_not_blocked(tmp_path: Path) -> None:
    async with running(tmp_path, "ok.test", "gone.test", LOCAL) as r:
        assert (await r.ask(get("gone.test", 80))).startswith(b"HTTP/1.1 502")
        assert (await r.ask(get("ok.test", 1))).startswith(b"HTTP/1.1 502")
    assert r.blocked == []


async def test_long_socket_paths(tmp_path: Path, site: Site) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    made = Running(str(deep / "p.sock"), ["ok.test", LOCAL])
    await made.proxy.start()
    folder = os.open(deep, os.O_RDONLY)
    made.proxy.socket_path = f"/proc/self/fd/{folder}/p.sock"
    assert (await made.ask(get("ok.test", site.port))).endswith(b"hi")
    await made.proxy.aclose()
    os.close(folder)


async def test_closing_ends_open_tunnels(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, running(tmp_path, "ok.test", LOCAL) as r:
        reader, writer = await asyncio.open_unix_connection(r.proxy.socket_path)
        writer.write(f"CONNECT ok.test:{port} HTTP/1.1\r\n\r\n".encode())
        await waiting.wait()
        await r.proxy.aclose()
        assert b"" in [await reader.read(), await reader.read()]
        writer.close()


def test_any_bytes_are_survived(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("fuzz")

    async def many(blobs: list[bytes]) -> list[str]:
        async with running(folder, "ok.test") as r:
            for blob in blobs:
                reader, writer = await asyncio.open_unix_connection(r.proxy.socket_path)
                writer.write(blob)
                writer.write_eof()
                await asyncio.wait_for(reader.read(), 60)
                writer.close()
            return r.asked

    starts = st.sampled_from([b"", b"\x05", b"\x05\x01\x00", b"GET http://", b"CONNECT "])
    blob = st.tuples(starts, st.binary(max_size=200)).map(b"".join)

    @settings(max_examples=25)
    @given(st.lists(blob, max_size=20))
    def check(blobs: list[bytes]) -> None:
        assert set(asyncio.run(many(blobs))) <= {"ok.test"}

    check()


class Patient:
    """A server that keeps its connection open and remembers everything that comes."""

    def __init__(self) -> None:
        self.seen = b""
        self.port = 0
        self.ended = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.seen += head
        if b"Upgrade: odd" in head:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: odd\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        while not self.seen.endswith(b"bye") and (data := await reader.read(65536)):
            self.seen += data
        writer.close()
        self.ended.set()


@asynccontextmanager
async def patient() -> AsyncIterator[Patient]:
    made = Patient()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


SMUGGLED = b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"


@pytest.mark.parametrize(
    ("extra", "body"),
    [
        ("", b""),
        ("Content-Length: 4\r\n", b"body"),
        ("Transfer-Encoding: chunked\r\n", b"4\r\nbody\r\n0\r\n\r\n"),
        ("Upgrade: websocket\r\n", b""),
    ],
)
async def test_no_second_request_on_a_connection(tmp_path: Path, extra: str, body: bytes) -> None:
    """Failed before: what followed the first request went to the same server unread."""
    async with patient() as server, running(tmp_path, "ok.test", LOCAL) as r:
        reader, writer = await asyncio.open_unix_connection(r.proxy.socket_path)
        writer.write(get("ok.test", server.port, extra) + body + SMUGGLED)
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")
        writer.write(SMUGGLED)
        await writer.drain()
        writer.close()
        await r.proxy.aclose()
        await asyncio.wait_for(server.ended.wait(), 60)
    assert server.seen.endswith(b"\r\n\r\n" + body)
    assert b"evil" not in server.seen
    assert server.seen.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "body",
    [
        b"4\r\nbody\n0\r\n\r\n" + SMUGGLED + b"\r\n0\r\n\r\n",
        b"0\r\nX: y\n\n" + SMUGGLED,
        b"0\r\n\n" + SMUGGLED,
        b"4\r\nbodyX0\r\n\r\n" + SMUGGLED,
        b"4\r\nbody\n\n0\r\n\r\n" + SMUGGLED,
    ],
)
async def test_no_second_request_in_what_ends_a_body(tmp_path: Path, body: bytes) -> None:
    """Failed before: a server that takes a bare line end for one saw another request in it."""
    async with patient() as server, running(tmp_path, "ok.test", LOCAL) as r:
        reader, writer = await asyncio.open_unix_connection(r.proxy.socket_path)
        writer.write(get("ok.test", server.port, "Transfer-Encoding: chunked\r\n") + body)
        writer.write_eof()
        await reader.read()
        writer.close()
        await r.proxy.aclose()
        await asyncio.wait_for(server.ended.wait(), 60)
    assert b"evil" not in server.seen


async def test_a_protocol_that_the_server_switches_to_goes_both_ways(tmp_path: Path) -> None:
    async with patient() as server, running(tmp_path, "ok.test", LOCAL) as r:
        reader, writer = await asyncio.open_unix_connection(r.proxy.socket_path)
        writer.write(get("ok.test", server.port, "Upgrade: odd\r\n"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.write(b"hello and bye")
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
    assert server.seen.endswith(b"hello and bye")


@pytest.mark.parametrize(
    "extra",
    [
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1\x0b\r\n",
        "Content-Length: \x1c1\r\n",
        "Transfer-Encoding: \x0cchunked\r\n",
    ],
)
async def test_a_body_of_two_lengths_is_refused(tmp_path: Path, site: Site, extra: str) -> None:
    """Failed before: it was passed on, for the server to choose."""
    async with running(tmp_path, "ok.test", LOCAL) as r:
        answer = await r.ask(get("ok.test", site.port, extra))
    assert answer.startswith(b"HTTP/1.1 400")
    assert site.seen == []
