from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from toolrest.secret import SafeUrl
from toolrest.testing import (
    Call,
    Cut,
    Fail,
    Freeform,
    Incomplete,
    LocalShell,
    Pause,
    Raw,
    Reply,
    Say,
    ScriptedServer,
    Think,
    context_full,
)
from toolrest.testing.script import Part, Step
from toolrest.wire.apis.responses import ResponsesModel, ResponsesParser
from toolrest.wire.model import (
    ArgumentsDelta,
    Completed,
    ItemDone,
    ModelError,
    ModelRequest,
    RateLimits,
    ReasoningDelta,
    Retrying,
    TextDelta,
    Usage,
)
from toolrest.wire.prices import Price, cost_of
from toolrest.wire.provider import OPENAI, Provider

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


async def test_a_reply_comes_as_items(connect: Any, ask: Any, done: Any) -> None:
    script: list[Part] = [
        Think("hm"),
        Say("hello"),
        Call("f", {"a": 1}),
        Freeform("apply_patch", "x"),
        LocalShell(["ls"]),
    ]
    async with ScriptedServer([script]) as server:
        events = await ask(connect(server, "responses"))
    assert [item["type"] for item in done(events)] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
    ]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "hello"
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["hm"]
    previews = [e for e in events if isinstance(e, ArgumentsDelta)]
    assert "".join(e.delta for e in previews if e.name == "f") == '{"a": 1}'
    assert [e.delta for e in previews if e.name == "apply_patch"] == ["x"]


async def test_a_call_is_there_before_the_stream_ends(connect: Any) -> None:
    async with ScriptedServer([[Call("f"), Pause(300)]]) as server:
        stream = connect(server, "responses").stream(ModelRequest("m", [USER]))
        async with asyncio.timeout(60):
            async for event in stream:
                if isinstance(event, ItemDone):
                    break
        await stream.aclose()


async def test_the_body_is_what_codex_sends(connect: Any, ask: Any) -> None:
    async with ScriptedServer(["ok"]) as server:
        model = connect(server, "responses", profile=OPENAI)
        tool = {"type": "function", "name": "f", "parameters": {}}
        await ask(
            model,
            [USER],
            instructions="be brief",
            tools=[tool],
            session_id="thread-1",
            reasoning_effort="high",
            reasoning_summary="auto",
            verbosity="low",
            output_schema={"type": "object"},
        )
    body = server.requests[0].body
    assert list(body) == [
        "model",
        "stream",
        "input",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning",
        "store",
        "include",
        "prompt_cache_key",
        "text",
    ]
    assert body["input"][0]["role"] == "developer"
    assert body["input"][0]["content"][0]["text"] == "be brief"
    assert body["input"][1:] == [USER]
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert (body["store"], body["tool_choice"], body["parallel_tool_calls"]) == (
        False,
        "auto",
        False,
    )
    assert body["prompt_cache_key"] == "thread-1"
    assert body["text"]["verbosity"] == "low"
    assert body["text"]["format"]["schema"] == {"type": "object"}


async def test_history_goes_back_as_it_came(connect: Any, ask: Any, done: Any) -> None:
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "xyz", "id": "rs_1"}
    foreign = {"type": "reasoning", "summary": [], "anthropic": {"signature": "s"}}
    call = {"type": "function_call", "name": "f", "arguments": "{", "call_id": "c"}
    repaired = {**call, "call_id": "d", "repaired": ["x"]}
    made_up = {"type": "ghost_snapshot"}
    async with ScriptedServer(["ok"]) as server:
        model = connect(server, "responses")
        await ask(model, [USER, thought, foreign, call, repaired, made_up])
    sent = server.requests[0].body["input"]
    assert [item["type"] for item in sent] == [
        "message",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert sent[1] == thought
    assert "repaired" not in sent[3]
    assert sent[4] == {"type": "function_call_output", "call_id": "c", "output": "aborted"}


async def test_headers_and_key(connect: Any, ask: Any) -> None:
    async with ScriptedServer(["ok"], key="sk-12345678") as server:
        model = connect(
            server,
            "responses",
            key="sk-12345678",
            headers={"X-Team": "blue"},
            query_params={"api-version": "1"},
        )
        await ask(model, session_id="s1")
    request = server.requests[0]
    assert request.headers["authorization"] == "Bearer sk-12345678"
    assert request.headers["x-team"] == "blue"
    assert request.headers["session-id"] == "s1"
    assert request.headers["user-agent"].startswith("toolrest/")
    assert request.path == "/v1/responses?api-version=1"


async def test_usage_and_end_turn(connect: Any, ask: Any) -> None:
    usage = Usage(input=50, cached_input=20, output=9, reasoning_output=3, total=59)
    async with ScriptedServer([Reply([Say("x")], usage=usage, end_turn=False)]) as server:
        events = await ask(connect(server, "responses"))
    assert events[-1] == Completed("resp_1", usage, end_turn=False)


async def test_a_number_of_tokens_that_cannot_be_is_none(connect: Any, ask: Any) -> None:
    """Failed before: what they cost was more than a number can be."""
    usage = Usage(input=10**400, output=9, total=10**400)
    async with ScriptedServer([Reply([Say("x")], usage=usage)]) as server:
        events = await ask(connect(server, "responses"))
    assert cost_of(events[-1].usage, Price(1.0, 1.0)) == 9 / 1_000_000


async def test_turn_state_is_echoed_within_its_turn_only(connect: Any, ask: Any) -> None:
    async with ScriptedServer(["1", "2", "3"], headers={"x-codex-turn-state": "abc"}) as server:
        model = connect(server, "responses")
        await ask(model, turn_id="t1")
        await ask(model, turn_id="t1")
        await ask(model, turn_id="t2")
    assert [r.headers.get("x-codex-turn-state") for r in server.requests] == [None, "abc", None]


async def test_rate_limits_are_told(connect: Any, ask: Any) -> None:
    headers = {"x-codex-primary-used-percent": "12.5", "x-codex-primary-window-minutes": "300"}
    async with ScriptedServer(["1"], headers=headers) as server:
        events = await ask(connect(server, "responses"))
    assert RateLimits({"primary": {"used_percent": 12.5, "window_minutes": 300}}) in events


async def test_one_connection_serves_many_requests(ask: Any) -> None:
    async with ScriptedServer(["1", "2", "3"]) as server:
        model = ResponsesModel(Provider("x", SafeUrl(server.url)), "m")
        for _ in range(3):
            await ask(model)
        assert len(server._tasks) == 1
        await model.aclose()


# What goes wrong


async def test_5xx_is_repeated_and_told(connect: Any, ask: Any, done: Any) -> None:
    script: list[Step] = [Fail(500), Fail(503, retry_after=0.01), "ok"]
    async with ScriptedServer(script) as server:
        events = await ask(connect(server, "responses", request_max_retries=2))
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [event.attempt for event in retries] == [1, 2]
    assert 0.17 < retries[0].delay < 0.23
    assert retries[1].delay == 0.01
    assert len(done(events)) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    [
        (Fail(400, "bad", "the tools are wrong"), "invalid_request", False),
        (context_full(), "context_window", False),
        (Fail(401, "x", "no such key"), "auth", False),
        (Fail(429, "rate_limit_exceeded", "slow"), "rate_limit", False),
        (Fail(429, "rate_limit_exceeded", "slow", retry_after=2), "rate_limit", True),
        (Fail(429, "insufficient_quota", "pay"), "quota", False),
        (Fail(500, "x", "oops"), "server", True),
    ],
)
async def test_refusals_have_a_kind_and_the_servers_words(
    connect: Any, ask: Any, fault: Fail, kind: str, *, retryable: bool
) -> None:
    async with ScriptedServer([fault]) as server:
        with pytest.raises(ModelError) as caught:
            await ask(connect(server, "responses"))
    error = caught.value
    assert (error.kind, error.retryable, error.status) == (kind, retryable, fault.status)
    assert fault.message in str(error)
    assert server.url in str(error)


@pytest.mark.parametrize(
    ("parts", "kind", "retryable"),
    [
        ([Say("x"), Cut()], "stream", True),
        ([Say("x"), Fail(200, "context_length_exceeded", "full")], "context_window", False),
        ([Fail(500, "server_is_overloaded", "busy")], "overloaded", False),
        ([Say("x"), Incomplete("max_output_tokens")], "incomplete", False),
        ([Cut()], "stream", True),
    ],
)
async def test_broken_streams(
    connect: Any, ask: Any, parts: Any, kind: str, *, retryable: bool
) -> None:
    async with ScriptedServer([parts]) as server:
        with pytest.raises(ModelError) as caught:
            await ask(connect(server, "responses"))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


async def test_an_item_of_an_odd_shape_is_kept(connect: Any, ask: Any, done: Any) -> None:
    odd = {"type": "reasoning", "summary": "not a list", "new": [1]}
    async with ScriptedServer([[Raw(odd), Say("ok")]]) as server:
        events = await ask(connect(server, "responses"))
    item = done(events)[0]
    assert item.pop("others")["message"] == {"new": odd.pop("new")}  # goes back to this server only
    assert item == odd
    assert done(events)[1]["type"] == "message"


async def test_silence_is_an_idle_timeout(connect: Any, ask: Any) -> None:
    async with ScriptedServer([[Say("x"), Pause(30)]]) as server:
        with pytest.raises(ModelError, match="idle timeout") as caught:
            await ask(connect(server, "responses", idle_timeout=0.2))
    assert caught.value.kind == "stream"


async def test_an_unreachable_server_is_named(ask: Any) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        model = ResponsesModel(Provider("mine", SafeUrl(url), request_max_retries=0), "m")
        with pytest.raises(ModelError) as caught:
            await ask(model)
        await model.aclose()
    assert caught.value.kind == "unreachable"
    assert f"{url}/responses" in str(caught.value)
    assert "'mine'" in str(caught.value)


async def test_no_error_shows_the_key(connect: Any, ask: Any) -> None:
    key = "sk-very-secret-0123"
    fault = Fail(401, "x", f"Incorrect key: {key}")
    async with ScriptedServer([fault]) as server:
        model = connect(server, "responses", key=key, key_variable="MY_KEY")
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert key not in str(caught.value)
    assert "MY_KEY" in str(caught.value)
    assert key not in repr(model.provider)


async def test_options_that_a_server_refuses_are_left_out(connect: Any, ask: Any) -> None:
    def picky(body: Any) -> Any:
        if "prompt_cache_key" in body:
            return Fail(400, "x", "Unknown parameter: 'prompt_cache_key'.")
        return "fine"

    async with ScriptedServer([picky, picky, picky]) as server:
        model = connect(server, "responses")
        await ask(model, session_id="s")
        await ask(model, session_id="s")
    assert ["prompt_cache_key" in r.body for r in server.requests] == [True, False, False]


async def test_cancelling_leaves_the_model_usable(connect: Any, ask: Any, done: Any) -> None:
    async with ScriptedServer([[Say("x"), Pause(300)], "again"]) as server:
        model = connect(server, "responses")
        task = asyncio.create_task(ask(model))
        while not server.requests:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(done(await ask(model))) == 1


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"code": 500, "message": "out of memory"}},
        {"error": "out of memory"},
        {"code": 500, "message": "out of memory", "type": "server_error"},
    ],
)
def test_an_error_without_a_known_type_keeps_the_servers_words(event: Any) -> None:
    """It used to become "stream closed before response.completed"."""
    parser = ResponsesParser()
    assert not list(parser.take(event))
    with pytest.raises(ModelError, match="out of memory"):
        list(parser.end())


async def test_hours_are_not_waited_for_before_a_reply_either(connect: Any, ask: Any) -> None:
    async with ScriptedServer([Fail(503, "x", "busy", retry_after=86_400)]) as server:
        with pytest.raises(ModelError, match="asks to wait 1,440 minutes"):
            await asyncio.wait_for(ask(connect(server, "responses", request_max_retries=3)), 30)
