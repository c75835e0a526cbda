"""Replies of the openai and anthropic packages go straight into `rest.answer`, streams too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from toolrest import Toolrest, tool
from toolrest.testing import Call, Say, ScriptedServer, Think
from toolrest.wire.model import ModelError

SCRIPT: list[Any] = [
    [Say("I will look."), Call("weather", {"city": "Oslo"}), Call("weather", {"city": 7})],
    "Yes.",
]


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Toolrest]:
    async with Toolrest(tmp_path, tools=[weather]) as rest:
        yield rest


async def ask(wire: str, url: str, rest: Toolrest, messages: list[Any], stream: bool) -> Any:
    """One request with the vendor's own package."""
    key, model = "sk-none-0123456789", "scripted"
    if wire == "anthropic":
        host = url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(api_key=key, base_url=host) as client:
            reply: Any = await client.messages.create(
                model=model, max_tokens=99, messages=messages, tools=rest.specs("anthropic"),
                stream=stream,
            )  # fmt: skip
            return [event async for event in reply] if stream else reply
    async with openai.AsyncOpenAI(api_key=key, base_url=url) as client:
        if wire == "chat":
            reply = await client.chat.completions.create(
                model=model, messages=messages, tools=rest.specs("chat"), stream=stream
            )
        else:
            reply = await client.responses.create(
                model=model, input=messages, tools=rest.specs("responses"), stream=stream
            )
        return [event async for event in reply] if stream else reply


def said(wire: str, reply: Any) -> list[Any]:
    """The model's own message of a reply that was not streamed, for the next request."""
    if wire == "anthropic":
        return [{"role": "assistant", "content": reply.content}]
    return [reply.choices[0].message] if wire == "chat" else list(reply.output)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
async def test_a_loop_with_the_vendors_package(rest: Toolrest, wire: str, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "Do I need an umbrella?"}]
    async with ScriptedServer(SCRIPT) as server:
        reply = await ask(wire, server.url, rest, messages, stream)
        answers = await rest.answer(reply)
        messages += answers if stream else [*said(wire, reply), *answers]
        last = await ask(wire, server.url, rest, messages, stream)
        assert await rest.answer(last) == []
        assert not server.refused
    sent = json.dumps(server.requests[1].body)
    assert "I will look." in sent
    assert "rain in Oslo" in sent
    assert "failed to parse function arguments" in sent


async def test_a_stream_itself_is_read_whole(rest: Toolrest) -> None:
    async with (
        ScriptedServer(SCRIPT) as server,
        openai.AsyncOpenAI(api_key="sk-none-0123456789", base_url=server.url) as client,
    ):
        stream = await client.chat.completions.create(
            model="scripted",
            messages=[{"role": "user", "content": "?"}],
            tools=rest.specs("chat"),
            stream=True,
        )
        first, *outputs = await rest.answer(stream)
    assert first["role"] == "assistant"
    assert [call["function"]["name"] for call in first["tool_calls"]] == ["weather", "weather"]
    assert [output["role"] for output in outputs] == ["tool", "tool"]


async def test_thinking_goes_back_as_it_came(rest: Toolrest) -> None:
    script: list[Any] = [[Think("Hm.", signature="sig"), Call("weather", {"city": "Oslo"})], "Yes."]
    messages: list[Any] = [{"role": "user", "content": "?"}]
    async with ScriptedServer(script) as server:
        messages += await rest.answer(await ask("anthropic", server.url, rest, messages, True))
        await ask("anthropic", server.url, rest, messages, True)
        assert not server.refused
    block = server.requests[1].body["messages"][1]["content"][0]
    assert (block["type"], block["thinking"], block["signature"]) == ("thinking", "Hm.", "sig")


async def test_no_call_of_a_stream_that_broke_off_is_run(rest: Toolrest) -> None:
    """Events that end before the reply is complete, as when the connection is lost."""
    async with ScriptedServer([[Say("a"), Call("weather", {"city": "Oslo"})]]) as server:
        events = await ask("anthropic", server.url, rest, [{"role": "user", "content": "?"}], True)
    with pytest.raises(ModelError, match="closed before message_stop"):
        await rest.answer(events[:-1])
