"""Replies as some servers and gateways really send them: ends, types and errors that are odd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.wire.conftest import user
from tests.wire.http.test_transport import CHUNKED, answering, read_request, serving

from toolrest.config.schema.families import ModelWire
from toolrest.secret import SafeUrl
from toolrest.wire import client
from toolrest.wire.model import ItemDone, ModelError, ModelRequest, Notice
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


async def ask(
    wire: ModelWire, raw: bytes, *, hold: bool = False, items: list[Any] | None = None
) -> list[Any]:
    """The text or the arguments of each item of a reply; `items` has them also of a broken one."""
    items = [] if items is None else items
    async with serving(answering(raw, hold=hold)) as url:
        provider = Provider("odd", SafeUrl(url), wire, request_max_retries=0)
        model = client_for(provider, "m")
        model.context_window = 1000  # it is not asked for
        try:
            async for event in model.stream(ModelRequest("m", [user("?")])):
                if isinstance(event, ItemDone):
                    item = event.item
                    items.append(item.get("arguments") or item["content"][0]["text"])
        finally:
            await model.aclose()
    return items


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
CAFE = chunk({"content": "café"})
LATIN = json.dumps(CAFE, ensure_ascii=False).encode("latin-1")
LINES = b"".join(json.dumps(each).encode() + b"\n" for each in TEXT)
READ: dict[str, tuple[ModelWire, bytes, list[str]]] = {
    "lines that end in CR": ("chat", chunked(sent(*TEXT).replace(b"\n", b"\r")), ["x"]),
    "a byte that is not UTF-8": ("chat", chunked(sent(LATIN, chunk(finish="stop"))), ["caf\ufffd"]),
    "lines of JSON": ("chat", typed(b"application/x-ndjson", LINES), ["x"]),
    "a document after a byte order mark": (
        "chat",
        typed(b"application/json", b"\xef\xbb\xbf" + DOCUMENT),
        ["x"],
    ),
    "a document with a byte that is not UTF-8": (
        "chat",
        typed(b"application/json", DOCUMENT.replace(b'"x"', b'"\xe9"')),
        ["\ufffd"],
    ),
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


async def test_events_in_bytes_one_by_one_whatever_their_type_is_said_to_be() -> None:
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-type: application/json\r\n\r\n")
    pieces = [b"1\r\n%c\r\n" % byte for byte in sent(*TEXT)]
    assert await ask("chat", b"".join([head, *pieces, b"0\r\n\r\n"])) == ["x"]


async def answers(*replies: bytes) -> AsyncIterator[list[Any]]:
    """What one model makes of each reply in turn: its items and notices, or an error."""
    left = list(replies)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(left.pop(0))

    async with serving(handler) as url:
        model = client_for(Provider("odd", SafeUrl(url), "chat", request_max_retries=0), "m")
        model.context_window = 1000
        for _ in replies:
            made: list[Any] = []
            try:
                async for event in model.stream(ModelRequest("m", [user("?")])):
                    if isinstance(event, ItemDone | Notice):
                        made.append(getattr(event, "item", event))
            except ModelError as error:
                made.append(error)
            yield made
        await model.aclose()


BARE = chunked(sent(chunk({"content": "I will now"})))


async def test_a_stream_that_ends_without_saying_how_was_cut() -> None:
    """It used to count as whole: half an answer ended the turn as if it were all of it."""
    seen = [made async for made in answers(chunked(sent(*TEXT)), BARE, BARE, BARE)]
    assert len(seen[0]) == 1
    for (error,) in seen[1:]:
        assert error.kind == "stream"
        assert error.retryable


async def test_a_server_that_never_says_how_a_reply_ends_is_believed_the_second_time() -> None:
    seen = [made async for made in answers(BARE, BARE, BARE, chunked(sent(*TEXT)), BARE)]
    assert [len(made) for made in seen] == [1, 2, 1, 1, 1]
    assert isinstance(seen[0][0], ModelError)
    assert "without a finish reason" in seen[1][0].text
    assert seen[2][0]["content"][0]["text"] == "I will now"
    assert isinstance(seen[4][0], ModelError)  # now it has said so once


@pytest.mark.parametrize("more", [[], [chunk({"tool_calls": [{"index": 1, "id": "d"}]})]])
async def test_whole_calls_of_a_cut_stream_are_kept(more: list[Any]) -> None:
    raw = chunked(sent(chunk({"content": "x"}), chunk(LATE), *more))
    async for made in answers(raw):
        message, call, error = made
        assert (message["type"], call["arguments"]) == ("message", '{"a":1}')
        assert error.retryable


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_a_call_that_the_server_calls_unfinished_is_not_made(at_the_end: bool) -> None:
    cut = {
        "type": "custom_tool_call",
        "call_id": "d",
        "name": "g",
        "input": "rm -r a",
        "status": "incomplete",
    }
    output = [{"type": "response.output_item.done", "item": item} for item in (CALL, cut)]
    response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    last = {"type": "response.incomplete", "response": response}
    raw = chunked(sent(*output, last))
    if at_the_end:
        document = json.dumps({**response, "output": [CALL, cut]}).encode()
        raw = typed(b"application/json", document)
    items: list[str] = []
    with pytest.raises(ModelError) as caught:
        await ask("responses", raw, items=items)
    assert caught.value.kind == "incomplete"
    # One that came as an event of its own runs already when the limit is known.
    assert items == ([] if at_the_end else ['{"a":1}'])


CUT_ANSWERS: dict[ModelWire, list[Any]] = {
    "chat": [chunk({"content": "x"}, "length"), {"usage": {"completion_tokens": 7}, "choices": []}],
    "anthropic": [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "max_tokens"},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ],
    "responses": [{"type": "response.incomplete", "response": {"usage": {"output_tokens": 7}}}],
}


@pytest.mark.parametrize("wire", CUT_ANSWERS)
async def test_what_a_cut_answer_has_cost_is_counted(wire: ModelWire) -> None:
    with pytest.raises(ModelError) as caught:
        await ask(wire, chunked(sent(*CUT_ANSWERS[wire])))
    assert caught.value.kind == "incomplete"
    assert caught.value.usage is not None
    assert caught.value.usage.output == 7


async def test_what_a_filter_stopped_is_not_called_too_long() -> None:
    response = {"incomplete_details": {"reason": "content_filter"}}
    with pytest.raises(ModelError, match="content filter") as caught:
        await ask("responses", chunked(sent({"type": "response.incomplete", "response": response})))
    assert caught.value.kind == "policy"


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
