"""Probes about sockets: IP, unix sockets of the host, exotic families, own listeners."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading

from .kit import Context, NotHere, probe

PATIENCE = 60.0


def tcp(family: int, address: tuple[str, int]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE)
        client.connect(address)
        client.sendall(b"x")


def udp(port: int, payload: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(PATIENCE)
        # Connected, so that it is told at once when nobody is there, and need not guess.
        client.connect(("127.0.0.1", port))
        client.send(payload)
        client.recv(512)


def stream(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE)
        client.connect(path)
        client.send(b"x")


def family(number: int, kind: int, protocol: int = 0) -> None:
    try:
        socket.socket(number, kind, protocol).close()
    except OSError as error:
        if error.errno in (errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT):
            raise NotHere("no such protocol") from None
        raise


@probe("deny")
def tcp_loopback(c: Context) -> None:
    tcp(socket.AF_INET, ("127.0.0.1", c["tcp"]))


@probe("deny")
def tcp6_loopback(c: Context) -> None:
    if not c["tcp6"]:
        raise NotHere("no IPv6")
    tcp(socket.AF_INET6, ("::1", c["tcp6"]))


@probe("deny")
def udp_loopback(c: Context) -> None:
    udp(c["udp"], b"echo")


@probe("deny")
def dns_stub(c: Context) -> None:
    query = (
        bytes.fromhex("123401000001000000000000") + b"\x07example\x03com\0" + bytes([0, 1, 0, 1])
    )
    udp(c["udp"], query)


@probe("deny")
def unix_stream_out(c: Context) -> None:
    stream(c["outside"] + "/stream.sock")


@probe("deny")
def unix_dgram_sendmsg_out(c: Context) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendmsg([b"x"], [], 0, c["outside"] + "/dgram.sock")


@probe("deny")
def unix_dgram_pair_out(c: Context) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendmsg([b"x"], [], 0, c["outside"] + "/dgram.sock")
    other.close()


@probe("deny")
def unix_stream_tmp(c: Context) -> None:
    stream(c["tmp_socket"])


@probe("deny")
def unix_abstract(c: Context) -> None:
    stream("\0" + c["abstract"])


@probe("deny")
def netlink_route(c: Context) -> None:
    with socket.socket(16, socket.SOCK_RAW, 0) as link:
        link.bind((0, 0))


@probe("deny")
def vsock_create(c: Context) -> None:
    family(40, socket.SOCK_STREAM)


@probe("deny")
def raw_icmp(c: Context) -> None:
    family(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@probe("deny")
def packet_create(c: Context) -> None:
    family(17, socket.SOCK_RAW)


@probe("deny")
def alg_create(c: Context) -> None:
    family(38, socket.SOCK_SEQPACKET)


@probe("func")
def tcp_listen_local(c: Context) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        tcp(socket.AF_INET, server.getsockname())
        server.accept()[0].close()


@probe("func")
def unix_listen_ws(c: Context) -> None:
    path = c["ws"] + "/own.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        stream(path)
        server.accept()[0].close()
    os.unlink(path)


@probe("func")
def unix_socketpair(c: Context) -> None:
    one, other = socket.socketpair()
    os.write(one.fileno(), b"x")
    os.read(other.fileno(), 1)


@probe("func")
def asyncio_selfpipe(c: Context) -> str | None:
    async def wait() -> str | None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        threading.Timer(0.05, lambda: loop.call_soon_threadsafe(woken.set)).start()
        try:
            await asyncio.wait_for(woken.wait(), 60)
        except TimeoutError:
            return "NOWAKE"
        return None

    return asyncio.run(wait())
