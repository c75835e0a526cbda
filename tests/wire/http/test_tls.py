"""Certificates: only those of the system, SSL_CERT_FILE and SSL_CERT_DIR are trusted."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import ipaddress
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from toolrest.wire.http.direct import Direct
from toolrest.wire.http.proxied import Proxied
from toolrest.wire.http.transport import Transport, Unreachable


class Authority(NamedTuple):
    """A CA of our own, as a file and as a folder, and a certificate that it gave to 127.0.0.1."""

    file: Path
    folder: Path
    server: Path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    root = tmp_path_factory.mktemp("tls")
    key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    ca = (
        _certificate(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    given = (
        _certificate(x509.Name([]), name, server_key)
        .add_extension(x509.SubjectAlternativeName([address]), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Authority(root / "ca.pem", root / "cas", root / "server.pem")
    made.file.write_bytes(ca.public_bytes(Encoding.PEM))
    made.folder.mkdir()
    # The name under which OpenSSL looks for it: a hash of the subject without its DER header.
    digest = hashlib.sha1(name.public_bytes()[2:], usedforsecurity=False).digest()
    (made.folder / f"{int.from_bytes(digest[:4], 'little'):08x}.0").symlink_to(made.file)
    private = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made.server.write_bytes(private + given.public_bytes(Encoding.PEM))
    return made


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


@asynccontextmanager
async def serving(certificate: Path) -> AsyncIterator[str]:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def fetch(transport: Transport, url: str) -> bytes:
    async with transport.stream("POST", url, b"", {}) as answer:
        return b"".join([chunk async for chunk in answer.aiter_bytes()])


@pytest.mark.parametrize("kind", [Direct, Proxied])
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_only_known_certificates_are_trusted(
    kind: Any, variable: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    async with serving(authority.server) as url:
        stranger = kind(5, 5)
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            await fetch(stranger, url)
        await stranger.aclose()
        place = authority.file if variable == "SSL_CERT_FILE" else authority.folder
        monkeypatch.setenv(variable, str(place))
        known = kind(5, 5)
        assert await fetch(known, url) == b"ok"
        with pytest.raises(Unreachable):
            await fetch(known, url.replace("127.0.0.1", "localhost"))
        await known.aclose()


def test_plain_http_loads_nothing_for_tls() -> None:
    code = """
import asyncio, sys
from toolrest.wire.http.direct import Direct
from toolrest.wire.http.transport import Unreachable
async def ask():
    async with Direct(5, 5).stream("GET", "http://127.0.0.1:9/", b"", {}):
        pass
try:
    asyncio.run(ask())
except Unreachable:
    print(sorted({"httpx2", "truststore"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
