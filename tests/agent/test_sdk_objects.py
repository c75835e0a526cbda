"""Replies of the openai and anthropic packages go straight into `rest.answer`, streams too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from toolrest import Toolrest, tool
from toolrest.testing import Call, Say, ScriptedServer, Think
from toolrest.wire.model import ModelError

SCRIPT: list[Any] = [
    [Say("I will look."), Call("weather", {"city": "Oslo"}), Call("weather", {"city": 7})],
    "Yes.",
]


@tool(mutating=False)
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


@pytest.mark.slow
@pytest.mark.parametrize(("wire", "last"), [("anthropic", 2), ("responses", 1)])
async def test_no_call_of_a_stream_that_broke_off_is_run(
    rest: Toolrest, wire: str, last: int
) -> None:
    """Events without the last ones, which say that the reply is complete."""
    async with ScriptedServer([[Say("a"), Call("weather", {"city": "Oslo"})]]) as server:
        events = await ask(wire, server.url, rest, [{"role": "user", "content": "?"}], True)
    with pytest.raises(ModelError, match="stream closed before"):
        await rest.answer(events[:-last])


CHAT: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "?"}]}


async def test_forms_in_which_a_reply_is_held(rest: Toolrest) -> None:
    """Each of them used to be taken for a reply without calls."""
    call = [Call("weather", {"city": "Oslo"})]
    async with (
        ScriptedServer([call] * 6) as server,
        openai.AsyncOpenAI(api_key="sk-none-0123456789", base_url=server.url) as client,
    ):
        chat: Any = client.chat.completions
        replies = {
            "a coroutine": chat.create(**CHAT),
            "a raw response": await chat.with_raw_response.create(**CHAT),
            "a coroutine of a raw response": chat.with_raw_response.create(**CHAT),
            "a raw stream": await chat.with_raw_response.create(**CHAT, stream=True),
        }
        answers = {name: await rest.answer(reply) for name, reply in replies.items()}
        async with chat.with_streaming_response.create(**CHAT) as response:
            answers["a response that is not read"] = await rest.answer(response)
        reply = await chat.create(**CHAT)
    answers["a choice"] = await rest.answer(reply.choices[0])
    answers["choices"] = await rest.answer(reply.choices)
    text = reply.model_dump_json()
    answers |= {"text": await rest.answer(text), "bytes": await rest.answer(text.encode())}
    response = httpx2.Response(200, text=text)
    answers["an HTTP response"] = await rest.answer(response)
    answers["a generator"] = await rest.answer(each for each in [reply])
    assert [name for name, made in answers.items() if "rain in Oslo" not in str(made)] == []


async def test_stream_helpers_of_the_packages(rest: Toolrest) -> None:
    """Their events have types of their own; a warning of pydantic's would fail this test."""
    key = "sk-none-0123456789"
    call: list[Any] = [Say("hm"), Call("weather", {"city": "Oslo"})]
    async with ScriptedServer([call] * 3) as server:
        host = server.url.removesuffix("/v1")
        async with (
            openai.AsyncOpenAI(api_key=key, base_url=server.url) as client,
            anthropic.AsyncAnthropic(api_key=key, base_url=host) as other,
        ):
            managers: list[Any] = [
                client.chat.completions.stream(**CHAT),
                client.responses.stream(model="scripted", input="?"),
                other.messages.stream(max_tokens=9, **CHAT),
            ]
            for manager in managers:
                async with manager as stream:
                    assert "rain in Oslo" in str(await rest.answer(stream))


async def test_a_call_whose_text_was_cut_is_answered_and_not_run(rest: Toolrest) -> None:
    ran: list[str] = []

    @tool(input_format="freeform", mutating=False)
    def script(text: str) -> str:
        """Run a script."""
        ran.append(text)
        return "ok"

    rest.add_tool(script)
    item = {"type": "custom_tool_call", "call_id": "c", "name": "script", "input": "rm -r old"}
    (cut,) = await rest.answer(
        {"status": "incomplete", "output": [item | {"status": "incomplete"}]}
    )
    assert (cut["call_id"], ran) == ("c", [])
    assert "was cut off" in cut["output"]
    await rest.answer([item | {"status": "completed"}])
    assert ran == ["rm -r old"]


async def test_the_text_of_a_stream(rest: Toolrest) -> None:
    delta = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "weather"}}]}
    delta["tool_calls"][0]["function"]["arguments"] = '{"city": "Oslo"}'  # type: ignore[index]
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    first, output = await rest.answer(f"data: {json.dumps(chunk)}\r\n\r\ndata: [DONE]\r\n\r\n")
    assert (first["role"], output["content"]) == ("assistant", "rain in Oslo")


async def test_what_is_no_reply_says_what_to_pass(rest: Toolrest) -> None:
    async with ScriptedServer([[Call("weather", {"city": "Oslo"})]]) as server:
        chunks = await ask("chat", server.url, rest, CHAT["messages"], True)
    read = iter(chunks)
    assert list(read)
    wrong = [chunks[0], read, "It rains.", b"\xff", None, 7, ask, ["It rains."]]
    for reply in wrong:
        with pytest.raises(TypeError, match="pass the model's reply: its JSON, an object of"):
            await rest.answer(reply)
    with pytest.raises(ModelError, match="no such model"):
        await rest.answer({"error": {"message": "no such model"}})
    assert await rest.answer([]) == []
