"""SOCKS5, as much as a client needs: no password, CONNECT only."""

from __future__ import annotations

import asyncio
import ipaddress

from toolrest.sandbox.network.tunnel import Dial, Refusal, carry

VERSION = b"\x05"
_NO_PASSWORD, _NO_METHOD = 0, 255
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_OK, _NOT_ALLOWED, _UNREACHABLE, _NO_COMMAND, _NO_ADDRESS = 0, 2, 4, 7, 8
_PATIENCE = 30.0


async def serve(
    dial: Dial,
    first: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """One client, from its greeting on."""
    async with asyncio.timeout(_PATIENCE):
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        if _NO_PASSWORD not in methods:
            writer.write(bytes([5, _NO_METHOD]))
            return
        writer.write(bytes([5, _NO_PASSWORD]))
        version, command, _, kind = await reader.readexactly(4)
        host = await _host(reader, kind)
        port = int.from_bytes(await reader.readexactly(2), "big")
    if version != 5 or command != _CONNECT or host is None:
        _reply(writer, _NO_COMMAND if host is not None else _NO_ADDRESS)
        return
    try:
        server = await dial(host, port, "socks5")
    except Refusal as refusal:
        _reply(writer, _NOT_ALLOWED if refusal.blocked else _UNREACHABLE)
        return
    _reply(writer, _OK)
    await carry((reader, writer), server)


async def _host(reader: asyncio.StreamReader, kind: int) -> str | None:
    """The target; a name's bytes become text one to one, so that nothing hides in decoding."""
    if kind == _IPV4:
        return str(ipaddress.IPv4Address(await reader.readexactly(4)))
    if kind == _IPV6:
        return str(ipaddress.IPv6Address(await reader.readexactly(16)))
    if kind == _NAME:
        return (await reader.readexactly((await reader.readexactly(1))[0])).decode("latin-1")
    return None


def _reply(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes([5, code, 0, _IPV4, 0, 0, 0, 0, 0, 0]))
