"""Replies as some servers and gateways really send them: ends, types and errors that are odd."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.wire.conftest import user
from tests.wire.http.test_transport import CHUNKED, answering, serving

from toolrest.config.schema.families import ModelWire
from toolrest.wire import client
from toolrest.wire.model import ItemDone, ModelError, ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "x"}],
}


def chunk(delta: Any = None, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]}


def sent(*events: Any) -> bytes:
    """Server-sent events; bytes are the data of one as they are."""
    data = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in events)
    return b"".join(b"data: " + each + b"\n\n" for each in data)


def chunked(body: bytes, *, cut: bool = False) -> bytes:
    return CHUNKED + b"%x\r\n%s\r\n" % (len(body), body) + (b"" if cut else b"0\r\n\r\n")


def typed(kind: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(body)
    return head + (b"content-type: " + kind + b"\r\n" if kind else b"") + b"\r\n" + body


async def ask(wire: ModelWire, raw: bytes, *, hold: bool = False) -> list[Any]:
    """The text or the arguments of each item of a reply."""
    async with serving(answering(raw, hold=hold)) as url:
        provider = Provider("odd", url, wire, request_max_retries=0)
        model = client_for(provider, "m")
        model.context_window = 1000  # it is not asked for
        try:
            events = [event async for event in model.stream(ModelRequest("m", [user("?")]))]
        finally:
            await model.aclose()
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return [i["arguments"] if "arguments" in i else i["content"][0]["text"] for i in items]


def anthropic(*, stops: bool = True, ends: bool = True) -> bytes:
    """A text and a call, with or without the events that end a block and the whole."""
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    blocks: list[Any] = [
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": "x"}),
        (call, {"type": "input_json_delta", "partial_json": '{"a":1}'}),
    ]
    events: list[Any] = [{"type": "message_start", "message": {"id": "m"}}]
    for index, (head, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": head})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events += [{"type": "content_block_stop", "index": index}] if stops else []
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    return sent(*events, *([{"type": "message_stop"}] if ends else []))


LATE = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":1}'}}]}
TEXT = (chunk({"content": "x"}), chunk(finish="stop"))
DOCUMENT = json.dumps(
    {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
).encode()
WHOLE = {"type": "response.completed", "response": {"id": "r", "output": [MESSAGE, CALL]}}
READ: dict[str, tuple[ModelWire, bytes, list[str]]] = {
    "a finish reason with every chunk": (
        "chat",
        chunked(sent(chunk({"content": "x"}, "stop"), chunk({"content": "y"}, "stop"), b"[DONE]")),
        ["xy"],
    ),
    "calls after the finish reason": (
        "chat",
        chunked(sent(*TEXT, chunk(LATE), b"[DONE]")),
        ["x", '{"a":1}'],
    ),
    "cut after the finish reason": ("chat", chunked(sent(*TEXT), cut=True), ["x"]),
    "a byte order mark": ("chat", chunked(b"\xef\xbb\xbf" + sent(*TEXT, b"[DONE]")), ["x"]),
    "a document without a type": ("chat", typed(b"", DOCUMENT), ["x"]),
    "a document as text": ("chat", typed(b"text/plain", b"\n " + DOCUMENT), ["x"]),
    "events as JSON": ("chat", typed(b"application/json", sent(*TEXT, b"[DONE]")), ["x"]),
    "items at the end only": ("responses", chunked(sent(WHOLE)), ["x", '{"a":1}']),
    "items by themselves and at the end": (
        "responses",
        chunked(sent({"type": "response.output_item.done", "item": MESSAGE}, WHOLE)),
        ["x"],
    ),
    "blocks without an end": ("anthropic", chunked(anthropic(stops=False)), ["x", '{"a":1}']),
    "a message without an end": ("anthropic", chunked(anthropic(ends=False)), ["x", '{"a":1}']),
    "cut after the stop reason": (
        "anthropic",
        chunked(anthropic(ends=False), cut=True),
        ["x", '{"a":1}'],
    ),
}


@pytest.mark.parametrize("name", READ)
async def test_nothing_of_a_reply_is_lost(name: str) -> None:
    wire, raw, expected = READ[name]
    assert await ask(wire, raw) == expected


@pytest.mark.parametrize(
    ("given", "text"), [({"a": 1}, '{"a":1}'), ("", "{}"), (None, "{}"), ([1], "[1]")]
)
async def test_arguments_are_text_as_the_api_wants_them_back(given: Any, text: str) -> None:
    item = {**CALL, "arguments": given}
    events = ({"type": "response.output_item.done", "item": item}, WHOLE)
    assert await ask("responses", chunked(sent(*events))) == [text]


@pytest.mark.parametrize(
    ("wire", "raw"),
    [
        ("chat", chunked(sent({"code": 502, "message": "out of memory"}))),
        ("chat", chunked(sent({"object": "error", "message": "out of memory", "type": "x"}))),
        (
            "chat",
            chunked(sent({"choices": [{"error": {"code": 502, "message": "out of memory"}}]})),
        ),
        ("chat", typed(b"application/json", b'{"detail": "out of memory"}')),
        ("anthropic", chunked(sent({"error": {"message": "out of memory"}}))),
        ("responses", typed(b"application/json", b'{"detail": "out of memory"}')),
        ("anthropic", typed(b"application/json", b'{"detail": "out of memory"}')),
    ],
    ids=["code", "object", "choice", "detail", "type", "Responses", "Anthropic"],
)
async def test_an_error_that_is_not_called_one_keeps_the_servers_words(
    wire: ModelWire, raw: bytes
) -> None:
    with pytest.raises(ModelError, match=r"^out of memory$"):
        await ask(wire, raw)


async def test_a_reply_without_a_word_is_no_reply() -> None:
    with pytest.raises(ModelError, match="no message in it") as caught:
        await ask("chat", chunked(sent(b"[DONE]")))
    assert caught.value.retryable


async def test_a_server_that_falls_silent_after_the_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It used to be waited for until the idle time was over, five minutes; then asked again."""
    monkeypatch.setattr(client, "_LAST_WORDS", 0.1)
    assert await ask("chat", chunked(sent(*TEXT), cut=True), hold=True) == ["x"]
    failed = {"type": "response.failed", "response": {"error": {"message": "out of memory"}}}
    with pytest.raises(ModelError, match="out of memory"):
        await ask("responses", chunked(sent(failed), cut=True), hold=True)


@pytest.mark.parametrize("status", [301, 303, 307])
async def test_a_redirect_is_named_and_not_followed(status: int) -> None:
    head = b"HTTP/1.1 %d Elsewhere\r\ncontent-length: 0\r\n" % status
    place = b"location: https://user:word@example.com/v2/chat?token=secret\r\n\r\n"
    with pytest.raises(ModelError, match=r"redirects to https://example\.com/v2/chat,") as caught:
        await ask("chat", head + place)
    assert (caught.value.kind, caught.value.retryable) == ("not_found", False)
