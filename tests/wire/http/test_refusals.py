"""A refusal's status counts, however its words are packed, cut or held back."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.wire.conftest import user
from tests.wire.http.test_transport import answering, serving

from toolrest.secret import SafeUrl
from toolrest.wire.http import endpoint
from toolrest.wire.model import ModelError, ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for

HEAD = b"HTTP/1.1 401 Unauthorized\r\n"
WORDS = json.dumps({"error": {"message": "no such key"}}).encode()
PACKED = gzip.compress(WORDS, mtime=0)  # the same in every test process


async def refused(raw: bytes, *, hold: bool = False) -> ModelError:
    async with serving(answering(raw, hold=hold)) as url:
        model = client_for(Provider("p", SafeUrl(url), "chat", request_max_retries=0), "m")
        model.context_window = 1000
        try:
            with pytest.raises(ModelError) as caught:
                async for _ in model.stream(ModelRequest("m", [user("?")])):
                    pass
        finally:
            await model.aclose()
    return caught.value


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED, True),
        (b"content-length: 500\r\n\r\n" + WORDS, True),
        (b"content-encoding: br\r\ncontent-length: 3\r\n\r\nabc", False),
        (b"content-encoding: gzip\r\ncontent-length: 0\r\n\r\n", False),
        (b"content-encoding: deflate\r\ncontent-length: 3\r\n\r\nabc", False),
        (b"transfer-encoding: chunked\r\n\r\nzz", False),
    ],
    ids=["packed", "cut", "unknown packing", "empty", "not packed", "no chunks"],
)
async def test_the_status_counts_when_the_words_cannot_be_read(raw: bytes, words: bool) -> None:
    """It used to be a broken connection, and was asked again five times."""
    error = await refused(HEAD + raw)
    assert (error.kind, error.status, error.retryable) == ("auth", 401, False)
    assert ("no such key" in error.message) is words


async def test_the_words_of_a_refusal_are_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "_REFUSAL_WAIT", 0.1)
    error = await refused(HEAD + b"content-length: 500\r\n\r\n" + WORDS, hold=True)
    assert error.status == 401
    assert "no such key" in error.message
