"""Proxies of the environment: which requests go through them, what they are told, how they fail."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode

import pytest
from tests.wire.conftest import user
from tests.wire.http.test_transport import answering, read_request, serving

from toolrest.secret import SafeUrl, Secret
from toolrest.wire.model import ModelError, ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for, list_models

BODY = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
WORD = "passw0rd-of-the-proxy"
SECRETS = (WORD, "key-of-the-user", "secret-of-the-query", "password-of-the-address")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def provider(url: str, key: str = "key-of-the-user") -> Provider:
    query = {"sig": Secret("secret-of-the-query")}
    return Provider(
        "p", SafeUrl(url), "chat", key=Secret(key), query_params=query, request_max_retries=0
    )


async def ask(endpoint: Provider) -> None:
    model = client_for(endpoint, "m")
    model.context_window = 1000
    try:
        async for _ in model.stream(ModelRequest("m", [user("?")])):
            pass
    finally:
        await model.aclose()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_gets_the_request_whole_and_the_log_no_secret(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(ANSWER)

    caplog.set_level(logging.DEBUG)
    async with serving(proxy) as url:
        monkeypatch.setenv(name, url.replace("//", f"//us%40er:{WORD}@").removesuffix("/v1"))
        await ask(provider("http://bob:password-of-the-address@model.invalid/v1", key=""))
        await ask(provider("http://model.invalid/v1"))
    line = b"POST http://model.invalid/v1/chat/completions?sig=secret-of-the-query HTTP/1.1\r\n"
    for head, sent in zip(seen, (b"Basic Ym9i", b"Bearer key-of-the-user"), strict=True):
        assert head.startswith(line)
        assert b"authorization: " + sent in head
        assert b"Proxy-Authorization: Basic " + b64encode(f"us@er:{WORD}".encode()) in head
    assert not [secret for secret in SECRETS if secret in caplog.text]


@pytest.mark.parametrize(
    ("excepted", "direct"),
    [
        ("127.0.0.1", True),
        ("*", True),
        ("example.com , 127.0.0.0/8", True),
        ("example.com", False),
        ("[::1", False),
    ],
)
async def test_no_proxy(excepted: str, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(ANSWER)

    async with serving(answering(ANSWER)) as url, serving(proxy) as through:
        monkeypatch.setenv("HTTP_PROXY", through.removesuffix("/v1"))
        monkeypatch.setenv("NO_PROXY", excepted)
        await ask(provider(url))
    assert bool(seen) is not direct


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://user:{}@127.0.0.1:9", "cannot reach"),
        ("http://user:{}@127.0.0.1:99999", "HTTP_PROXY is not valid"),
        ("http://user:{}@[::1", "HTTP_PROXY is not valid"),
        ("ftp://user:{}@127.0.0.1:9", "cannot be used"),
    ],
)
async def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of these used to end the session with an exception of the library's."""
    monkeypatch.setenv("HTTP_PROXY", address.format(WORD))
    for asked in (ask, list_models):
        with pytest.raises(ModelError, match=message) as caught:
            await asked(provider("http://model.invalid/v1"))
        assert caught.value.kind == "unreachable"
        assert "PROXY" in caught.value.message or "proxy" in caught.value.message
        assert not [secret for secret in SECRETS if secret in caught.value.message]


async def test_a_proxy_that_wants_a_password_is_not_taken_for_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(refusal)) as url:
        monkeypatch.setenv("HTTP_PROXY", url.removesuffix("/v1"))
        with pytest.raises(ModelError, match="Check HTTPS_PROXY, HTTP_PROXY") as caught:
            await ask(provider("http://model.invalid/v1"))
    assert not caught.value.retryable
    assert "key" not in caught.value.message
