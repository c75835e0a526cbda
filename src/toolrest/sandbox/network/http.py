"""HTTP through a proxy: CONNECT tunnels, and requests that name a whole URL.

Of a request that names a URL the header and the body are passed on, and nothing after: a second
request on the same connection would reach the judged server under any other host's name.
"""

from __future__ import annotations

import asyncio
import json
import re

from toolrest.sandbox.network.tunnel import Dial, Refusal, Stream, carry, closing, pump

MOST_HEADER = 1 << 16
_PATIENCE = 30.0
_REQUEST = re.compile(r"([A-Z]{1,20}) (\S{1,8000}) HTTP/1\.[01]")
_URL = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[^/?#\[\]@:]*)(?::([0-9]{1,5}))?([/?#].*)?")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]@:/]*):([0-9]{1,5})")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")
_LENGTH = re.compile("[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n\Z")
_SWITCHED = re.compile(rb"HTTP/1\.1 101 ")
_CHUNKED = -1
_HOP = ("proxy-", "connection:", "keep-alive:", "te:", "host:")
"""Header lines that concern this hop, or that this hop writes itself."""


async def serve(
    dial: Dial,
    first: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """One request, from its first byte on."""
    async with asyncio.timeout(_PATIENCE):
        try:
            head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            _answer(
                writer, 431, "Request Header Fields Too Large", "the request header is too long"
            )
            return
    lines = head[:-4].decode("latin-1").split("\r\n")
    request = _REQUEST.fullmatch(lines[0])
    target = _target(request[1], request[2]) if request else None
    length = _body_length(lines[1:])
    if request is None or target is None or _malformed(lines[1:]) or length is None:
        _answer(writer, 400, "Bad Request", "not a request that a proxy can carry")
        return
    host, port, path = target
    tunnel = request[1] == "CONNECT"
    try:
        server = await dial(host, port, "connect" if tunnel else "http")
    except Refusal as refusal:
        _refuse(writer, refusal)
        return
    if tunnel:
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await carry((reader, writer), server)
        return
    async with closing(server):
        server[1].write(_rewritten(request[1], path, host, port, lines[1:]))
        await _exchange((reader, writer), server, length, _upgrades(lines[1:]))


async def _exchange(client: Stream, server: Stream, length: int, upgrades: bool) -> None:
    """The body of one request, and its answer; more only where the server changes protocols."""
    answer = asyncio.create_task(_answered(client, server, upgrades))
    sending = asyncio.create_task(_send_body(client[0], server[1], length))
    try:
        if await answer:  # it may come before the whole body is sent
            await sending
            await asyncio.gather(pump(client[0], server[1]), pump(server[0], client[1]))
    finally:
        answer.cancel()
        sending.cancel()
        await asyncio.gather(answer, sending, return_exceptions=True)


async def _answered(client: Stream, server: Stream, upgrades: bool) -> bool:
    """Pass the server's answer on; True when it is a switch to another protocol."""
    if upgrades:
        head = await server[0].readuntil(b"\r\n\r\n")
        client[1].write(head)
        if _SWITCHED.match(head):
            return True
    await pump(server[0], client[1])
    return False


async def _send_body(source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int) -> None:
    if length == _CHUNKED:
        while size := await _chunk(source, sink):
            await _copy(source, sink, size)
            _check_end(sink, is_right=await source.readexactly(2) == b"\r\n")
            sink.write(b"\r\n")
        while (line := await source.readuntil(b"\r\n")) != b"\r\n":
            _check_end(sink, is_right=_HEADER.fullmatch(line[:-2].decode("latin-1")) is not None)
            sink.write(line)
        sink.write(line)
    else:
        await _copy(source, sink, length)
    await sink.drain()


async def _chunk(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> int:
    """The size of the next chunk, whose line is passed on; ValueError when it has none."""
    line = await source.readuntil(b"\r\n")
    size = _CHUNK_SIZE.match(line)
    if size is None:
        sink.close()
        raise ValueError("not the size of a chunk")
    sink.write(line)
    return int(size[1], 16)


def _check_end(sink: asyncio.StreamWriter, *, is_right: bool) -> None:
    """What another reader could take for the end of the body, and the start of a request."""
    if not is_right:
        sink.close()
        raise ValueError("not the end of a chunk or of a body")


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, count: int) -> None:
    while count > 0:
        data = await source.read(min(count, MOST_HEADER))
        if not data:
            return
        count -= len(data)
        sink.write(data)
        await sink.drain()


def _body_length(headers: list[str]) -> int | None:
    """How long the request's body is; None where two readers could disagree about that."""
    lengths = {_value(line) for line in headers if _is(line, "content-length")}
    codings = [_value(line) for line in headers if _is(line, "transfer-encoding")]
    if codings:
        return _CHUNKED if [c.lower() for c in codings] == ["chunked"] and not lengths else None
    if not lengths:
        return 0
    only = lengths.pop()
    return None if lengths or not _LENGTH.fullmatch(only) else int(only)


def _upgrades(headers: list[str]) -> bool:
    return any(_is(line, "upgrade") for line in headers)


def _value(line: str) -> str:
    """A header's value, without the blanks and tabs around it; other space is part of it."""
    return line.split(":", 1)[1].strip(" \t")


def _is(line: str, name: str) -> bool:
    return line.lower().startswith(f"{name}:")


def _target(method: str, text: str) -> tuple[str, int, str] | None:
    """Host, port and path; None for a form that a proxy does not take."""
    match = (_AUTHORITY if method == "CONNECT" else _URL).fullmatch(text)
    if match is None:
        return None
    port = int(match[2] or 80)
    path = "" if method == "CONNECT" else (match[3] or "/").split("#")[0]
    if not 0 < port < 65536:
        return None
    return match[1], port, path if path.startswith("/") else f"/{path}"


def _malformed(headers: list[str]) -> bool:
    """Bare line ends, folded lines or odd names could hide something from this reading."""
    return not all(_HEADER.fullmatch(line) for line in headers)


def _rewritten(method: str, path: str, host: str, port: int, headers: list[str]) -> bytes:
    """The request as the server wants it; the Host header says what was judged."""
    kept = [line for line in headers if not line.lower().startswith(_HOP)]
    authority = host if port == 80 else f"{host}:{port}"
    head = [f"{method} {path} HTTP/1.1", f"Host: {authority}"]
    head += [*kept, "Connection: Upgrade" if _upgrades(kept) else "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode("latin-1")


def _refuse(writer: asyncio.StreamWriter, refusal: Refusal) -> None:
    blocked = refusal.blocked
    if blocked is None:
        _answer(writer, 502, "Bad Gateway", refusal.message)
        return
    kind = "allowlist" if blocked.reason == "not_allowed" else "policy"
    body = {
        "status": "blocked",
        "host": blocked.host,
        "port": blocked.port,
        "protocol": blocked.protocol,
        "reason": blocked.reason,
        "message": f"[toolrest] blocked: {refusal.message}",
    }
    header = f"x-proxy-error: blocked-by-{kind}\r\n"
    _answer(writer, 403, "Forbidden", json.dumps(body), header, "application/json")


def _answer(
    writer: asyncio.StreamWriter,
    code: int,
    phrase: str,
    text: str,
    extra: str = "",
    kind: str = "text/plain; charset=utf-8",
) -> None:
    body = text.encode() + b"\n"
    head = (
        f"HTTP/1.1 {code} {phrase}\r\n{extra}Content-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("latin-1") + body)
