"""HTTP through a proxy: CONNECT tunnels, and requests that name a whole URL."""

from __future__ import annotations

import asyncio
import json
import re

from toolrest.sandbox.network.tunnel import Dial, Refusal, carry

MOST_HEADER = 1 << 16
_PATIENCE = 30.0
_REQUEST = re.compile(r"([A-Z]{1,20}) (\S{1,8000}) HTTP/1\.[01]")
_URL = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[^/?#\[\]@:]*)(?::([0-9]{1,5}))?([/?#].*)?")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]@:/]*):([0-9]{1,5})")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")
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
    if request is None or target is None or _malformed(lines[1:]):
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
    else:
        server[1].write(_rewritten(request[1], path, host, port, lines[1:]))
    await carry((reader, writer), server)


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
    upgrading = any(line.lower().startswith("upgrade:") for line in kept)
    authority = host if port == 80 else f"{host}:{port}"
    head = [f"{method} {path} HTTP/1.1", f"Host: {authority}"]
    head += [*kept, "Connection: Upgrade" if upgrading else "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode("latin-1")


def _refuse(writer: asyncio.StreamWriter, refusal: Refusal) -> None:
    blocked = refusal.blocked
    if blocked is None:
        _answer(writer, 502, "Bad Gateway", refusal.words)
        return
    kind = "allowlist" if blocked.reason == "not_allowed" else "policy"
    body = {
        "status": "blocked",
        "host": blocked.host,
        "port": blocked.port,
        "protocol": blocked.protocol,
        "reason": blocked.reason,
        "message": f"[toolrest] blocked: {refusal.words}",
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
