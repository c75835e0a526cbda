"""Certificates: strangers are refused, those of SSL_CERT_FILE are trusted, by both transports."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toolrest.wire.http.direct import Direct
from toolrest.wire.http.transport import Proxied, Transport, Unreachable


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


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
async def test_only_known_certificates_are_trusted(
    kind: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(certificate) as url:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        stranger = kind(5, 5)
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            await fetch(stranger, url)
        await stranger.aclose()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        known = kind(5, 5)
        assert await fetch(known, url) == b"ok"
        with pytest.raises(Unreachable):
            await fetch(known, url.replace("127.0.0.1", "localhost"))
        await known.aclose()
