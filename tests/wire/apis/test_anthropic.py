from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from toolrest.secret import SafeUrl, Secret
from toolrest.testing import Call, Cut, Fail, Incomplete, Reply, Say, ScriptedServer, Think
from toolrest.testing.frames import frame
from toolrest.wire.apis.anthropic import AnthropicModel
from toolrest.wire.apis.anthropic_stream import AnthropicParser
from toolrest.wire.model import ItemDone, ModelError, ModelRequest
from toolrest.wire.model_families import ModelInfo
from toolrest.wire.provider import Profile, Provider

TOOLS = [{"name": "f", "input_schema": {}}, {"name": "g", "input_schema": {}}]


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def model(info: ModelInfo | None = None) -> AnthropicModel:
    provider = Provider("x", SafeUrl("http://127.0.0.1:1"), "anthropic", key=Secret("k"))
    return AnthropicModel(provider, "claude-x", info=info)


def body(items: list[Any], info: ModelInfo | None = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(model(info).body(ModelRequest("claude-x", items, **more)))
    return made


def marks(value: Any) -> int:
    return json.dumps(value).count("cache_control")


def test_what_is_asked_for() -> None:
    sent = body([user("hi")], tools=TOOLS, instructions="be brief")
    assert sent["system"] == [
        {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}
    ]
    assert sent["max_tokens"] == 64_000
    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert [marks(tool) for tool in sent["tools"]] == [0, 1]
    assert body([user("hi")], tools=TOOLS, parallel_tool_calls=True)["tool_choice"] == {
        "type": "auto"
    }


@pytest.mark.parametrize(
    ("tokens", "most"),
    [(None, 64_000), (1000, 64_000), (150_000, 45_000), (195_000, 4096), (900_000, 4096)],
)
def test_a_reply_may_have_what_the_window_leaves(tokens: int | None, most: int) -> None:
    """Older models refuse a request that with its `max_tokens` is larger than the window."""
    claude = model()
    claude.context_window = 200_000
    sent = json.loads(claude.body(ModelRequest("m", [user("hi")], tokens=tokens)))
    assert sent["max_tokens"] == most


def test_the_cache_ends_where_requests_ended() -> None:
    """Each request marks its own end and that of the one before; never more than four."""
    claude = model()
    items: list[Any] = [user("go")]
    ends: list[str] = []
    for turn in range(6):
        sent = json.loads(claude.body(ModelRequest("m", items, instructions="i", tools=TOOLS)))
        assert marks(sent) == (3 if turn == 0 else 4)
        marked = [m for m in sent["messages"] if marks(m)]
        assert marked[-1] is sent["messages"][-1]
        if turn:
            assert json.dumps(marked[0]["content"]) == ends[-1]
        ends.append(json.dumps(marked[-1]["content"]))
        items += [
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": f"c{turn}"},
            {"type": "function_call_output", "call_id": f"c{turn}", "output": "x"},
        ]


@pytest.mark.parametrize(
    ("info", "effort", "thinking", "config"),
    [
        (ModelInfo(1, 9000, "adaptive"), "high", {"type": "adaptive"}, {"effort": "high"}),
        (
            ModelInfo(1, 9000, "budget"),
            "low",
            {"type": "enabled", "budget_tokens": 2048},
            None,
        ),
        (ModelInfo(1, 9000, "adaptive"), "xhigh", {"type": "adaptive"}, {"effort": "max"}),
        (
            ModelInfo(1, 9000, "adaptive", ("low", "xhigh", "max")),
            "xhigh",
            {"type": "adaptive"},
            {"effort": "xhigh"},
        ),
        (ModelInfo(1, 9000, "none"), "high", None, None),
        (ModelInfo(1, 9000, "adaptive"), None, None, None),
        (ModelInfo(1, 9000, "budget"), "none", None, None),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(
    info: ModelInfo, effort: str | None, thinking: Any, config: Any
) -> None:
    sent = body([user("x")], info, reasoning_effort=effort)
    assert sent.get("thinking") == thinking
    assert sent.get("output_config") == config
    assert sent["max_tokens"] > (thinking or {}).get("budget_tokens", 0)


async def test_signed_thinking_comes_back_unchanged(connect: Any, ask: Any, done: Any) -> None:
    async with ScriptedServer([[Think("hm", "sig-1"), Call("f")], "ok", "so"]) as server:
        claude = connect(server, "anthropic")
        history = [user("x")]
        history += done(await ask(claude, history))
        history.append(
            {"type": "function_call_output", "call_id": history[-1]["call_id"], "output": ""}
        )
        await ask(claude, history)
        changed = json.loads(json.dumps(history))
        changed[1]["summary"][0]["text"] = "other"
        await ask(connect(server, "anthropic"), changed)
    assert server.refused == ["Invalid `signature` in `thinking` block"]
    assert "thinking" not in json.dumps(server.requests[-1].body["messages"])
    blocks = server.requests[1].body["messages"][1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "hm", "signature": "sig-1"}
    result = server.requests[1].body["messages"][2]["content"][0]
    assert result["content"] == "(no output)"


def test_calls_without_their_thinking_go_on_without_it() -> None:
    """The API wants thinking before the calls of the last reply, or none at all."""
    info = ModelInfo(1, 9000, "budget")
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    said = {"type": "message", "role": "assistant", "content": [{"text": "so"}]}
    history = [user("x"), call, output]
    assert "thinking" not in body(history, info, reasoning_effort="low")
    assert "thinking" in body([*history, said, user("y")], info, reasoning_effort="low")


def test_hidden_thinking_comes_back_too() -> None:
    parser = AnthropicParser({})
    events = [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "redacted_thinking", "data": "opaque"},
        },
        {"type": "content_block_stop", "index": 0},
    ]
    made = [e for event in events for e in parser.take(event) if isinstance(e, ItemDone)]
    said = {"type": "message", "role": "assistant", "content": [{"text": "so"}]}
    sent = body([user("x"), made[0].item, said, user("y")])
    assert sent["messages"][1]["content"] == [
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "text": "so"},
    ]


async def test_a_reply_that_was_cut_after_its_thinking_does_not_end_the_session(
    connect: Any, ask: Any
) -> None:
    """The API refuses a message that ends with thinking, so what was cut is left out."""
    script: list[Any] = [[Think("hm", "sig-1"), Cut()], "one", "two"]
    async with ScriptedServer(script) as server:
        claude = connect(server, "anthropic")
        history = [user("x")]
        with suppress(ModelError):
            async for event in claude.stream(ModelRequest("m", history)):
                if isinstance(event, ItemDone):
                    history.append(event.item)
        assert history[1]["type"] == "reasoning"
        history.append(user("go on"))
        history += [e.item for e in await ask(claude, history) if isinstance(e, ItemDone)]
        history.append(user("and?"))
        await ask(claude, history)
    assert server.refused == []
    first, *others = server.requests[2].body["messages"]
    assert [part["text"] for part in first["content"]] == ["x", "go on"]
    assert [message["role"] for message in others] == ["assistant", "user"]


def test_thinking_after_a_text_is_left_out_when_nothing_follows_it() -> None:
    thought = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "anthropic": {"signature": "s"},
    }
    said = {"type": "message", "role": "assistant", "content": [{"text": "so"}]}
    sent = body([user("x"), thought, said, thought, user("y")])["messages"]
    assert [block["type"] for block in sent[1]["content"]] == ["thinking", "text"]


def test_a_history_never_ends_or_begins_with_the_assistant() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"text": "so far  "}]}
    sent = body([said])["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"][0]["text"] == "so far"


def test_a_failed_output_is_marked() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
    failed = {"type": "function_call_output", "call_id": "c", "output": "no", "failed": True}
    result = body([user("x"), call, failed])["messages"][2]["content"][0]
    assert result["is_error"] is True


async def test_headers(connect: Any, ask: Any) -> None:
    async with ScriptedServer(["ok"], key="key-12345") as server:
        await ask(connect(server, "anthropic", key="key-12345"))
    headers = server.requests[0].headers
    assert headers["x-api-key"] == "key-12345"
    assert headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("parts", "kind", "retryable"),
    [
        ([Say("x"), Incomplete("max_output_tokens")], "incomplete", False),
        ([Say("x"), Incomplete("model_context_window_exceeded")], "context_window", False),
        ([Say("x"), Incomplete("content_filter")], "policy", False),
        ([Say("x"), Fail(200, "overloaded_error", "busy")], "overloaded", True),
        ([Fail(429, "rate_limit_error", "slow")], "rate_limit", True),
        ([Fail(413, "request_too_large", "prompt is too long: 9 tokens")], "context_window", False),
    ],
)
async def test_how_answers_end(
    connect: Any, ask: Any, parts: Any, kind: str, *, retryable: bool
) -> None:
    async with ScriptedServer([parts]) as server:
        with pytest.raises(ModelError) as caught:
            await ask(connect(server, "anthropic"))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


async def test_529_is_repeated(connect: Any, ask: Any, done: Any) -> None:
    fault = Fail(529, "overloaded_error", "Overloaded", retry_after=0.01)
    async with ScriptedServer([fault, "ok"]) as server:
        events = await ask(connect(server, "anthropic", request_max_retries=1))
    assert len(done(events)) == 1


async def test_a_paused_turn_goes_on(connect: Any, ask: Any) -> None:
    async with ScriptedServer([Reply([Say("x")], end_turn=False)]) as server:
        events = await ask(connect(server, "anthropic"))
    assert events[-1].end_turn is False


def declared(**capabilities: Any) -> AnthropicModel:
    profile = Profile(**capabilities)
    address = SafeUrl("http://127.0.0.1:1")
    provider = Provider("x", address, "anthropic", key=Secret("k"), profile=profile)
    return AnthropicModel(provider, "claude-x")


def test_options_that_a_server_is_said_not_to_take_are_not_sent() -> None:
    request = ModelRequest("m", [user("x")], tools=TOOLS)
    assert "tool_choice" not in json.loads(declared(tool_choice=False).body(request))
    sent = json.loads(declared(parallel_tool_calls=False).body(request))
    assert sent["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize("repair", [True, False])
def test_arguments_are_put_right_unless_the_settings_say_no(repair: bool) -> None:
    parser = declared(repair=repair).parser(ModelRequest("m", []))
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"partial_json": '{"a": 1,}'}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
    ]
    made = [e for event in events for e in parser.take(event) if isinstance(e, ItemDone)]
    assert json.loads(made[0].item["arguments"].replace(",}", "}")) == {"a": 1}
    assert ("," in made[0].item["arguments"]) is not repair


def test_a_call_that_was_cut_is_no_call() -> None:
    parser = AnthropicParser({})
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"partial_json": '{"a": "unf'}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ]
    made = [e for event in events for e in parser.feed(frame(event)[6:].strip())]
    assert not any(isinstance(event, ItemDone) for event in made)
    with pytest.raises(ModelError, match="max_tokens"):
        list(parser.take({"type": "message_stop"}))


def test_a_server_that_cannot_stream() -> None:
    parser = AnthropicParser({})
    document = {
        "type": "message",
        "id": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1},
    }
    items = [event.item for event in parser.whole(document) if isinstance(event, ItemDone)]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert items[0]["anthropic"] == {"signature": "s"}
    assert json.loads(items[2]["arguments"]) == {"a": 1}
    assert parser.completed is not None
    assert parser.completed.usage is not None
    assert (parser.completed.usage.input, parser.completed.usage.cached_input) == (7, 4)
