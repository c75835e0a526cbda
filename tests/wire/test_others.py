"""Keys that servers add to their calls and messages: back to the server they came from, only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.conversation.test_retries import Open, opened
from tests.wire.conftest import user
from tests.wire.test_cut_replies import DONE, noting, replies, stopped
from tests.wire.test_odd_replies import chunk, chunked, sent, typed

from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.config.schema.families import ModelWire
from toolrest.secret import SafeUrl
from toolrest.wire.apis.chat_stream import ChatParser
from toolrest.wire.client import HttpModel
from toolrest.wire.model import ItemDone, ModelError, ModelRequest
from toolrest.wire.provider import HOSTED, OPENAI, Provider
from toolrest.wire.providers import client_for

__all__ = ["opened"]

SIGNATURE = "CtEBAVSoXO4" + "aGVsbG8+/" * 200
# As Google's address for OpenAI's clients streams it.
GEMINI = [
    chunk(
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "extra_content": {"google": {"thought_signature": SIGNATURE}},
                    "function": {"arguments": '{"text":"one"}', "name": "note"},
                    "id": "function-call-1",
                    "index": 0,
                    "type": "function",
                }
            ],
        }
    ),
    chunk(finish="stop"),
    b"[DONE]",
]
LONG = f"call_1a2b__thought__{SIGNATURE}"


def with_id(call_id: str) -> list[Any]:
    function = {"name": "note", "arguments": '{"text":"one"}'}
    call = {"index": 0, "id": call_id, "type": "function", "function": function}
    return [chunk({"tool_calls": [call]}), chunk(finish="tool_calls"), b"[DONE]"]


def items_of(*events: Any, place: str = "") -> list[dict[str, Any]]:
    parser = ChatParser(HOSTED, {}, place=place)
    feeds = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
    made = [found for data in feeds for found in parser.feed(data)]
    return [event.item for event in made if isinstance(event, ItemDone)]


def model(place: str, wire: ModelWire = "chat", **more: Any) -> HttpModel:
    return client_for(Provider(place, SafeUrl(f"https://{place}.example/v1"), wire, **more), "m")


def messages(at: HttpModel, items: list[Any]) -> list[dict[str, Any]]:
    body = json.loads(at.body(ModelRequest("m", [user("go"), *items])))
    found: list[dict[str, Any]] = body["input" if at.wire == "responses" else "messages"]
    return found


def place_of(at: HttpModel) -> str:
    return at.provider.place


async def test_googles_signature_of_a_call_goes_back(opened: Open) -> None:
    """Gemini 3 answers 400 to a request in which it is missing."""
    async with replies(chunked(sent(*GEMINI)), chunked(sent(*DONE["chat"]))) as (server, bodies):
        session = opened(server, "chat")
        notes = noting(session)
        assert (await session.run("go")).text == "done"
    (call,) = bodies[1]["messages"][-2]["tool_calls"]
    assert notes == ["one"]
    assert call["extra_content"] == {"google": {"thought_signature": SIGNATURE}}
    assert (call["id"], call["function"]["name"]) == ("function-call-1", "note")


async def test_it_still_does_when_the_session_is_resumed(
    tmp_path: Path, toolrest_home: Path
) -> None:
    raws = [chunked(sent(*each)) for each in (GEMINI, DONE["chat"], DONE["chat"])]
    async with replies(*raws) as (server, bodies):
        row = {"base_url": server.url, "wire_api": "chat"}
        given = {"model": "m", "model_provider": "p", "model_providers": {"p": row}}
        config = default_config(given, workspace=tmp_path)
        async with open_session(config) as session:
            noting(session)
            await session.run("go")
        async with open_session(config, resume=session.journal.path) as session:
            await session.run("go on")
    assert bodies[2]["messages"][2]["tool_calls"] == bodies[1]["messages"][2]["tool_calls"]
    assert SIGNATURE in json.dumps(bodies[2])


@pytest.mark.parametrize("wire", ["chat", "anthropic", "responses"])
def test_no_other_server_gets_it(wire: ModelWire) -> None:
    here = model("here")
    items = items_of(*GEMINI, place=place_of(here))
    assert SIGNATURE in json.dumps(messages(here, items))
    assert SIGNATURE not in json.dumps(messages(model("there", wire), items))
    moved = client_for(Provider("here", SafeUrl("https://elsewhere.example/v1"), "chat"), "m")
    assert SIGNATURE not in json.dumps(messages(moved, items))


def test_unknown_keys_of_a_message_its_calls_and_their_functions() -> None:
    function = {"name": "f", "arguments": '{"a"', "provider_specific_fields": {"sig": "ab"}}
    more = {"arguments": ":1}", "provider_specific_fields": {"sig": "cd", "n": 1}}
    noted: dict[str, Any] = {
        "note": "x",
        "list": [1],
        "refusal": None,
        "audio": None,
        "none": None,
        "no": {},
    }
    here = model("here")
    items = items_of(
        chunk({"role": "assistant", **noted}),
        chunk({"note": "y", "list": [2], "tool_calls": [{"index": 0, "function": function}]}),
        chunk({"tool_calls": [{"index": 0, "mark": 7, "function": more}]}, "tool_calls"),
        b"[DONE]",
        place=place_of(here),
    )
    message = messages(here, items)[1]
    assert (message.pop("note"), message.pop("list")) == ("xy", [2])
    assert message.keys() == {"role", "content", "tool_calls"}
    (call,) = message["tool_calls"]
    assert call["mark"] == 7
    assert call["function"]["provider_specific_fields"] == {"sig": "abcd", "n": 1}
    assert call["function"]["arguments"] == '{"a":1}'


def test_those_of_a_text_and_a_final_message_that_repeats_them() -> None:
    here = model("here")
    final = {"role": "assistant", "content": "hi", "mark": "one"}
    last = {"choices": [{"delta": {}, "message": final, "finish_reason": "stop"}]}
    items = items_of(chunk({"content": "hi", "mark": "one"}), last, b"[DONE]", place=place_of(here))
    assert messages(here, items)[1] == {"role": "assistant", "content": "hi", "mark": "one"}


def test_more_than_64_kib_of_a_message_is_not_kept() -> None:
    here = model("here")
    half = chunk({"mark": "x" * 40_000, "content": "hi"})
    assert "mark" in messages(here, items_of(half, b"[DONE]", place=place_of(here)))[1]
    assert items_of(half, half, b"[DONE]", place=place_of(here))[0].keys() == {
        "type",
        "role",
        "content",
    }


MISTRAL = {
    "detail": [
        {
            "type": "extra_forbidden",
            "loc": ["body", "messages", 2, "assistant", "tool_calls", 0, "extra_content"],
            "msg": "Extra inputs are not permitted",
        }
    ]
}
GROQ = {
    "error": {
        "message": "'messages.2' : for 'role:assistant' the following must be satisfied"
        "[('messages.2' : property 'reasoning_content' is unsupported)]",
        "type": "invalid_request_error",
    }
}
LITELLM = {
    "error": {
        "message": f"litellm.BadRequestError: MistralException - {json.dumps(MISTRAL)}",
        "code": "400",
    }
}


def refused(status: int, body: Any) -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 %d No\r\ncontent-length: %d\r\n\r\n%s" % (status, len(data), data)


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        (refused(422, MISTRAL), "extra_content"),
        (refused(400, LITELLM), "extra_content"),
        (refused(400, GROQ), "reasoning_content"),
    ],
    ids=["Mistral", "behind LiteLLM", "Groq"],
)
async def test_a_key_that_the_server_refuses_by_name_is_left_out_from_then_on(
    opened: Open, answer: bytes, key: str
) -> None:
    first = [chunk({"reasoning_content": "hm"}), *GEMINI]
    done = chunked(sent(*DONE["chat"]))
    async with replies(chunked(sent(*first)), answer, done, done) as (server, bodies):
        session = opened(server, "chat")
        noting(session)
        assert (await session.run("go")).text == "done"
        assert (await session.run("more")).text == "done"
    assert [f'"{key}"' in json.dumps(body["messages"]) for body in bodies] == [
        False,
        True,
        False,
        False,
    ]
    other = {"extra_content", "reasoning_content"} - {key}
    assert f'"{other.pop()}"' in json.dumps(bodies[2]["messages"])


# The other wires


async def test_unknown_keys_on_the_responses_api() -> None:
    here, there = model("here", "responses"), model("there", "responses")
    raw = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    response = {"id": "r", "output": [{**raw, "mark": {"a": 1}, "none": None}]}
    parser = here.parser(ModelRequest("m", []))
    done = json.dumps({"type": "response.completed", "response": response}).encode()
    items = [event.item for event in parser.feed(done) if isinstance(event, ItemDone)]
    assert messages(here, items)[1] == {**raw, "mark": {"a": 1}}
    assert messages(there, items)[1] == raw


async def test_unknown_keys_on_anthropics_api() -> None:
    here, there = model("here", "anthropic"), model("there", "anthropic")
    raw = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    content = [{"type": "text", "text": "so", "citations": [1]}, {**raw, "caller": {"type": "d"}}]
    parser = here.parser(ModelRequest("m", []))
    events = parser.whole({"content": content, "stop_reason": "tool_use"})
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert messages(here, items)[1]["content"] == content
    plain = [{"type": "text", "text": "so"}, raw]
    assert messages(there, items)[1]["content"] == plain


async def test_a_key_that_anthropics_api_refuses_by_name(opened: Open) -> None:
    call = {"type": "tool_use", "id": "c", "name": "note", "input": {}, "caller": {"type": "x"}}
    delta = {"type": "input_json_delta", "partial_json": '{"text":"one"}'}
    events = [
        {"type": "content_block_start", "index": 0, "content_block": call},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        *stopped("tool_use"),
    ]
    words = "messages.1.content.0.tool_use.caller: Extra inputs are not permitted"
    no = refused(400, {"error": {"type": "invalid_request_error", "message": words}})
    done = chunked(sent(*DONE["anthropic"]))
    async with replies(chunked(sent(*events)), no, done) as (server, bodies):
        session = opened(server, "anthropic")
        noting(session)
        assert (await session.run("go")).text == "done"
    assert ['"caller"' in json.dumps(body["messages"]) for body in bodies] == [False, True, False]


# Ids of calls


async def test_an_id_with_a_signature_in_it_stays_as_it_came(opened: Open) -> None:
    seen: list[Any] = []
    async with replies(chunked(sent(*with_id(LONG))), chunked(sent(*DONE["chat"]))) as (
        server,
        bodies,
    ):
        session = opened(server, "chat")
        session.rest.subscribe(seen.append)
        notes = noting(session)
        assert (await session.run("go")).text == "done"
    assistant, answer = bodies[1]["messages"][-2:]
    assert (assistant["tool_calls"][0]["id"], answer["tool_call_id"]) == (LONG, LONG)
    assert (notes, answer["content"]) == (["one"], "noted one")
    shown = {event.call_id for event in seen if hasattr(event, "call_id")}
    assert shown
    assert all(len(each) <= 64 for each in shown)


def answered(items: list[Any]) -> list[Any]:
    done = {"type": "function_call_output", "call_id": items[0]["call_id"], "output": "x"}
    return [*items, done]


@pytest.mark.parametrize(
    "there",
    [
        lambda: model("openai", "responses"),
        lambda: model("openai", profile=OPENAI),
        lambda: client_for(Provider("o", SafeUrl("https://api.openai.com/v1"), "chat"), "m"),
        lambda: model("anthropic", "anthropic"),
    ],
    ids=["Responses", "profile", "address", "Anthropic"],
)
@pytest.mark.parametrize("raw", [False, True])
def test_where_64_characters_are_the_limit_a_session_that_goes_on_has_short_ones(
    there: Callable[[], HttpModel], raw: bool
) -> None:
    items = items_of(*with_id(LONG), place="elsewhere")
    items = [{**item, "call_id": LONG} for item in items] if raw else items
    text = json.dumps(messages(there(), answered(items)))
    assert "call_1a2b" in text
    assert LONG[:65] not in text


def test_an_id_of_more_than_64_kib_is_an_error() -> None:
    assert items_of(*with_id("x" * 65_536))
    with pytest.raises(ModelError, match="id of 65537 characters") as caught:
        items_of(*with_id("x" * 65_537))
    assert not caught.value.retryable


@given(st.lists(st.sampled_from(["a", LONG, f"{LONG}2", "x y", ""]), max_size=6))
def test_ids_are_unique_and_answered_whatever_they_are(ids: list[str]) -> None:
    here = model("here")
    items = [found for each in ids for found in items_of(*with_id(each), place=place_of(here))]
    sent_ = messages(here, [part for item in items for part in answered([item])])
    calls = [call["id"] for each in sent_ for call in each.get("tool_calls", [])]
    assert calls == [each["tool_call_id"] for each in sent_ if each["role"] == "tool"]
    assert len(set(calls)) == len(ids)


async def test_empty_fields_of_a_call_are_no_call(opened: Open) -> None:
    empty = {"name": "", "arguments": ""}
    message = {"role": "assistant", "content": "hi", "function_call": empty}
    for raw in (
        chunked(sent(chunk({"content": "hi", "function_call": empty}, "stop"), b"[DONE]")),
        typed(b"application/json", json.dumps({"choices": [{"message": message}]}).encode()),
    ):
        async with replies(raw) as (server, bodies):
            session = opened(server, "chat")
            assert (await session.run("go")).text == "hi"
            assert len(bodies) == 1
    assert (await session.rest.answer({"choices": [{"message": message}]})) == []
