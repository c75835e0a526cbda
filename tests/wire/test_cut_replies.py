"""Replies with an event that cannot be read, or cut by a limit: none of their calls is guessed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agent.conversation.test_retries import Open, heard, opened
from tests.wire.http.test_transport import read_request, serving
from tests.wire.test_odd_replies import anthropic, ask, chunk, chunked, sent, typed

from toolrest import tool
from toolrest.config.schema.families import ModelWire
from toolrest.wire import client
from toolrest.wire.model import ModelError

__all__ = ["opened"]

LOST = b'{"choices": [{"delta": {"tool_calls": [{"ind'


def entry(arguments: str, **more: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": 0, **more, "function": {"arguments": arguments}}]})


def named(arguments: str) -> dict[str, Any]:
    function = {"name": "note", "arguments": arguments}
    return chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]})


def block(index: int, *pieces: bytes | str, ends: bool = True) -> list[Any]:
    """The events of a call; bytes are an event as it is."""
    head = {"type": "tool_use", "id": f"c{index}", "name": "note", "input": {}}
    events: list[Any] = [{"type": "content_block_start", "index": index, "content_block": head}]
    for piece in pieces:
        delta = {"type": "input_json_delta", "partial_json": piece}
        event = {"type": "content_block_delta", "index": index, "delta": delta}
        events.append(piece if isinstance(piece, bytes) else event)
    return [*events, *([{"type": "content_block_stop", "index": index}] if ends else [])]


def stopped(reason: str) -> list[Any]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def item(text: str, call_id: str = "c", **more: Any) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": call_id, "name": "note", "arguments": text, **more}
    return {"type": "response.output_item.done", "item": call}


BROKEN: dict[str, tuple[ModelWire, list[Any]]] = {
    "Chat": (
        "chat",
        [named('{"text":"DEL /tmp/x'), LOST, entry('"}'), chunk(finish="tool_calls"), b"[DONE]"],
    ),
    "Chat, after a finish reason with every chunk": (
        "chat",
        [{"choices": [{**named('{"text":"DEL /x')["choices"][0], "finish_reason": "stop"}]}, LOST,
         entry('"}'), b"[DONE]"],
    ),
    "Anthropic": (
        "anthropic",
        [*block(0, '{"text":"DEL /tmp/x', b'{"type": "content_bl', '"}'), *stopped("tool_use")],
    ),
    "Anthropic, after its stop reason": (
        "anthropic",
        [*block(0, '{"text":"DEL /x', ends=False), stopped("tool_use")[0], LOST,
         {"type": "content_block_delta", "index": 0,
          "delta": {"type": "input_json_delta", "partial_json": '"}'}}, stopped("")[1]],
    ),
    "Responses": ("responses", [LOST, item('{"text":"x"}')]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_no_call_is_made_that_the_lost_event_could_belong_to(name: str) -> None:
    wire, events = BROKEN[name]
    items: list[str] = []
    with pytest.raises(ModelError, match="cannot read an event") as caught:
        await ask(wire, chunked(sent(*events)), items=items)
    assert caught.value.retryable
    assert items == []


async def test_lines_of_json_with_a_lost_one_are_broken_too() -> None:
    lines = [json.dumps(chunk({"content": "do"})), '{"choices": [{"de', json.dumps(chunk({}))]
    raw = typed(b"application/x-ndjson", "\n".join(lines).encode())
    with pytest.raises(ModelError, match="cannot read an event"):
        await ask("chat", raw)


AFTER: dict[ModelWire, bytes] = {
    "chat": sent(chunk({"content": "x"}), chunk(finish="stop"), b"bye", b"[DONE]", b"bye"),
    "anthropic": anthropic() + sent(b"bye"),
    "responses": sent({"type": "response.completed", "response": {"id": "r"}}, b"bye"),
}


@pytest.mark.parametrize("wire", AFTER)
async def test_what_comes_after_the_end_does_not_matter(
    wire: ModelWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_LAST_WORDS", 0.1)
    comments = b": a comment\n\n"
    await ask(wire, chunked(comments + AFTER[wire]))


# In a session


@asynccontextmanager
async def replies(*raw: bytes) -> AsyncIterator[tuple[SimpleNamespace, list[dict[str, Any]]]]:
    """A server of these replies, of which the last is given again; and the requests to it."""
    bodies: list[dict[str, Any]] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if not request.startswith(b"POST"):
            return
        bodies.append(json.loads(request.partition(b"\r\n\r\n")[2]))
        writer.write(raw[min(len(bodies), len(raw)) - 1])
        await writer.drain()

    async with serving(handler) as url:
        yield SimpleNamespace(url=url), bodies


DONE: dict[ModelWire, list[Any]] = {
    "chat": [chunk({"content": "done"}), chunk(finish="stop"), b"[DONE]"],
    "anthropic": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"text": "done"}},
        *stopped("end_turn"),
    ],
    "responses": [
        {"type": "response.output_item.done", "item": {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "done"}]}},
        {"type": "response.completed", "response": {"id": "r"}},
    ],
}  # fmt: skip
WHOLE_BEFORE: dict[ModelWire, list[Any]] = {
    "anthropic": [*block(0, '{"text":"one"}'), *block(1, '{"text":"tw', LOST, 'o"}')],
    "responses": [item('{"text":"one"}', "c0"), LOST, item('{"text":"two"}', "c1")],
}


def noting(session: Any) -> list[str]:
    notes: list[str] = []

    @tool(mutating=False)
    def note(text: str) -> str:
        """Take a note."""
        notes.append(text)
        return f"noted {text}"

    session.rest.add_tool(note)
    return notes


@pytest.mark.parametrize("wire", WHOLE_BEFORE)
async def test_a_call_that_was_whole_before_keeps_its_output_and_runs_once(
    opened: Open, wire: ModelWire
) -> None:
    first = chunked(sent(*WHOLE_BEFORE[wire]))
    async with replies(first, chunked(sent(*DONE[wire]))) as (server, bodies):
        session = opened(server, wire)
        notes = noting(session)
        result = await session.run("go")
    assert (result.text, notes) == ("done", ["one"])
    assert "noted one" in json.dumps(bodies[1])
    assert sum(each.get("name") == "note" for each in session.history) == 1


@pytest.mark.parametrize("wire", ["chat", "anthropic", "responses"])
async def test_a_server_that_always_sends_such_an_event_is_an_error_after_the_retries(
    opened: Open, wire: ModelWire
) -> None:
    lost = b"{broken " + b"x" * 400
    async with replies(chunked(sent(lost, *DONE[wire]))) as (server, bodies):
        session = opened(server, wire, stream_max_retries=3)
        seen = heard(session)
        result = await session.run("go")
    assert (result.status, len(bodies), len(seen["stream_error"])) == ("failed", 4, 3)
    assert result.error is not None
    assert result.error.endswith(lost[:200].decode())


CUT: dict[str, tuple[ModelWire, bytes]] = {
    "Chat": (
        "chat",
        chunked(sent(named('{"text":"one"}'), chunk(finish="length"), b"[DONE]")),
    ),
    "Anthropic": (
        "anthropic",
        chunked(sent(*block(0, '{"text":"on'), *stopped("max_tokens"))),
    ),
    "Anthropic, at the start of the arguments": (
        "anthropic",
        chunked(sent(*block(0), *stopped("max_tokens"))),
    ),
    "Anthropic, as a document": (
        "anthropic",
        typed(b"application/json", json.dumps({"content": [
            {"type": "tool_use", "id": "c", "name": "note", "input": {"text": "one"}}],
            "stop_reason": "max_tokens"}).encode()),
    ),
    "Responses": (
        "responses",
        chunked(sent(item('{"text":"on', status="incomplete"), {"type": "response.incomplete",
         "response": {"incomplete_details": {"reason": "max_output_tokens"}}})),
    ),
    "Responses, all at the end": (
        "responses",
        chunked(sent({"type": "response.completed", "response": {
            "id": "r", "status": "incomplete", "output": [item('{"text":"one"}')["item"]]}})),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
async def test_all_calls_of_a_reply_cut_by_the_token_limit_fail_with_one_sentence(
    opened: Open, name: str
) -> None:
    wire, raw = CUT[name]
    async with replies(raw, chunked(sent(*DONE[wire]))) as (server, bodies):
        session = opened(server, wire)
        notes = noting(session)
        result = await session.run("go")
    assert (result.status, result.text, notes) == ("completed", "done", [])
    said = [each["output"] for each in session.history if "output" in each]
    assert said == [
        "not run: the token limit cut this reply before it was complete; "
        "make the call again, in smaller parts"
    ]
    assert said[0] in json.dumps(bodies[1])


async def test_a_model_whose_every_reply_is_cut_is_stopped(opened: Open) -> None:
    async with replies(CUT["Chat"][1]) as (server, bodies):
        session = opened(server, "chat")
        result = await session.run("go")
    assert (result.status, result.reason) == ("failed", "model_incomplete")
    assert len(bodies) == 6


async def test_no_call_of_a_reply_that_a_filter_stopped_is_made(opened: Open) -> None:
    raw = chunked(sent(named('{"text":"one"}'), chunk(finish="content_filter"), b"[DONE]"))
    async with replies(raw) as (server, _):
        session = opened(server, "chat")
        notes = noting(session)
        result = await session.run("go")
    assert (result.reason, notes) == ("model_policy", [])
    assert [each["output"] for each in session.history if "output" in each] == [
        "not run: the server's content filter stopped this reply"
    ]
