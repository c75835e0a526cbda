"""Sessions against llama.cpp's own server on its three APIs: what holds whatever a model says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from zlib import crc32

import pytest
from tests.conftest import FULL
from tests.real.conftest import WIRES, Serve, assert_valid, note

from toolrest import events
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.conversation.events import AgentMessageDelta, ContextCompacted
from toolrest.agent.conversation.usage import Budget
from toolrest.agent.history.history import message
from toolrest.config.schema.families import ModelWire

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk"
    "+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
Talk = Callable[..., Conversation]
pytestmark = pytest.mark.timeout(300 if FULL else 60)
WORDS = 2_000 if FULL else 300


def wires_of(test: str) -> list[ModelWire]:
    """The APIs on which a test makes sense."""
    return [w for w in WIRES if w != "responses" or "own_limit" not in test]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test on every API in the full run; else each on one of them, always the same."""
    name = metafunc.function.__name__
    wires = wires_of(name)
    if not FULL:
        wires = [wires[crc32(name.encode()) % len(wires)]]
    metafunc.parametrize("wire", wires)


@pytest.mark.slow
async def test_a_conversation_with_calls(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    """The server takes every request of several turns with calls in them."""
    calls = 0
    async with serve(calls=0.9) as server:
        session = talk(server.settings(wire), note)
        for prompt in ("one", "two", "three"):
            result = await session.run(prompt, budget=Budget(max_turns=5))
            assert result.status in ("completed", "budget"), result
            calls = assert_valid(session)
    assert calls > 0
    assert "noted: " in str(session.history)  # a tool of the host's own was run
    assert session.accounting.window == 32768  # as the server says


async def test_a_first_request_that_is_too_large(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    async with serve(window=1024) as server:
        result = await talk(server.settings(wire), note).run("word " * 2000)
    assert (result.status, result.reason) == ("failed", "model_context_window")
    assert "1,024 tokens" in str(result.error)


@pytest.mark.slow
async def test_a_long_conversation_is_summarised_and_goes_on(
    wire: ModelWire, serve: Serve, talk: Talk
) -> None:
    async with serve(calls=0.0) as server:
        session = talk(server.settings(wire))
        seen: list[events.Event] = []
        session.rest.subscribe(seen.append)
        for number in range(4):
            result = await session.run(f"{number} " + "word " * (WORDS // 5))
            assert result.status == "completed", result
            assert_valid(session)
            session.accounting.limit = session.accounting.limit or session.tokens + WORDS // 2
    assert any(isinstance(event, ContextCompacted) for event in seen)


@pytest.mark.long
async def test_an_answer_keeps_to_a_schema(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    """A model that writes at random, on a server that can keep it to a schema or cannot."""
    schema = {
        "type": "object",
        "properties": {"n": {"enum": [1, 2]}, "ok": {"type": "boolean"}},
        "required": ["n", "ok"],
        "additionalProperties": False,
    }
    async with serve(calls=0.0, predict=40) as server:
        session = talk(server.settings(wire), note)
        result = await session.run("which?", output_schema=schema)
        assert_valid(session)
    assert result.turns == 3  # twice with tools on offer, then held to the schema
    if wire == "anthropic":  # llama.cpp holds nothing to a schema there
        assert (result.status, result.reason) == ("failed", "schema_unmet")
        assert "is not JSON" in str(result.error)
    else:
        assert result.status == "completed", result
        answer = json.loads(result.text or "")
        assert answer["n"] in (1, 2)
        assert isinstance(answer["ok"], bool)


@pytest.mark.long
async def test_a_schema_does_not_keep_a_model_from_its_tools(
    wire: ModelWire, serve: Serve, talk: Talk
) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1]}}, "required": ["n"]}
    async with serve(calls=0.9) as server:
        session = talk(server.settings(wire), note)
        await session.run("which?", budget=Budget(max_turns=4), output_schema=schema)
        assert assert_valid(session) > 0


async def test_an_answer_that_the_servers_own_limit_cuts(
    wire: ModelWire, serve: Serve, talk: Talk
) -> None:
    # On Responses llama.cpp does not say that it cut an answer.
    async with serve(calls=0.0, predict=3) as server:
        settings = server.settings(wire)
        if wire == "anthropic":  # this API always states a limit
            settings["model_max_output_tokens"] = 3
        session = talk(settings)
        result = await session.run("hello")
        assert (result.status, result.reason) == ("failed", "model_incomplete")
        assert_valid(session)
        compacted = [i for i in session.history if "summary" in str(i.get("content"))]
    assert not compacted


async def test_later_instructions_with_a_strict_template(
    wire: ModelWire, serve: Serve, talk: Talk
) -> None:
    async with serve(calls=0.0) as server:
        session = talk(server.settings(wire))
        assert (await session.run("hello")).status == "completed"
        result = await session.run([message("developer", "a new rule"), message("user", "go on")])
        assert result.status == "completed", result


async def test_a_picture_for_a_model_without_eyes(
    wire: ModelWire, serve: Serve, talk: Talk
) -> None:
    shown = [{"type": "input_image", "image_url": PIXEL}, {"type": "input_text", "text": "what?"}]
    seen: list[events.Event] = []
    async with serve(calls=0.0) as server:
        session = talk(server.settings(wire))
        session.rest.subscribe(seen.append)
        for _ in range(2):
            result = await session.run([{"type": "message", "role": "user", "content": shown}])
            assert result.status == "completed", result
    warned = [e.message for e in seen if isinstance(e, events.Warning) and "images" in e.message]
    assert len(warned) == 1


async def test_a_wrong_key(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    async with serve(key="right-key-123") as server:
        given = {"experimental_bearer_token": "wrong-key-456"}
        result = await talk(server.settings(wire, **given)).run("hello")
    assert (result.status, result.reason) == ("failed", "model_auth")
    assert "wrong-key-456" not in str(result.error)


async def test_pings_while_a_long_prompt_is_read(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    async with serve(calls=0.0, ping=1) as server:
        result = await talk(server.settings(wire)).run("word " * WORDS)
    assert result.status == "completed", result


async def test_a_first_token_that_takes_too_long(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    async with serve(calls=0.0) as server:
        options = {"request": {"first_token_timeout_ms": 20}}
        result = await talk(server.settings(wire, **options)).run("word " * 2_000)
    assert (result.status, result.reason) == ("failed", "model_stream")
    assert "first_token_timeout_ms" in str(result.error)


async def test_a_server_that_dies_in_the_middle(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    """The session is valid after it, and goes on with the next server."""
    async with serve(calls=0.5) as server, serve(calls=0.0) as next_one:
        session = talk(server.settings(wire), note)

        def heard(event: events.Event) -> None:
            if isinstance(event, AgentMessageDelta):
                server.kill()

        session.rest.subscribe(heard)
        async with asyncio.timeout(60):
            while (result := await session.run("tell me")).status in ("completed", "budget"):
                assert_valid(session)
        assert result.reason in ("model_stream", "model_unreachable"), result
        assert_valid(session)
        again = talk(next_one.settings(wire), note)
        again.transcript.replace(session.history)
        result = await again.run("and now?", budget=Budget(max_turns=3))
        assert result.status in ("completed", "budget"), result
        assert_valid(again)


async def test_an_answer_in_one_piece(wire: ModelWire, serve: Serve, talk: Talk) -> None:
    async with serve(calls=0.9) as server:
        session = talk(server.settings(wire, request={"stream": False}), note)
        result = await session.run("hello", budget=Budget(max_turns=3))
        assert result.status in ("completed", "budget"), result
        assert_valid(session)
