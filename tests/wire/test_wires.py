"""What holds on every wire: the same script, the same items, valid requests, the same faults."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolrest import Toolrest, tool
from toolrest.config.schema.families import ModelWire
from toolrest.items import JSONObject
from toolrest.secret import SafeUrl
from toolrest.testing import (
    Call,
    Cut,
    Fail,
    Freeform,
    Garbage,
    LocalShell,
    Pause,
    Reply,
    Say,
    ScriptedServer,
    Think,
    context_full,
)
from toolrest.testing.checks import problems
from toolrest.wire import reply
from toolrest.wire.items.refused_reasoning import RefusedReasoning
from toolrest.wire.model import ItemStarted, ModelError, ModelRequest, Notice, TextDelta, Usage
from toolrest.wire.provider import HOSTED, LOCAL, OPENAI, Profile, Provider
from toolrest.wire.providers import client_for

WIRES: tuple[ModelWire, ...] = get_args(ModelWire)
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk"
    "+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Any:
    return request.param


def user(text: str) -> JSONObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def output(call: JSONObject, text: Any = "done") -> JSONObject:
    custom = call["type"] == "custom_tool_call"
    kind = "custom_tool_call_output" if custom else "function_call_output"
    return {"type": kind, "call_id": call["call_id"], "output": text}


async def test_text_comes_in_pieces_and_whole(
    wire: ModelWire, connect: Any, ask: Any, done: Any
) -> None:
    async with ScriptedServer([Reply([Say("hello world", chunks=4)])]) as server:
        events = await ask(connect(server, wire))
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(pieces) == 4
    assert done(events)[0]["content"][0]["text"] == "".join(pieces) == "hello world"
    assert ItemStarted("message", events[0].item_id) == events[0]


async def test_a_conversation_with_tools(
    wire: ModelWire, connect: Any, ask: Any, done: Any
) -> None:
    """Twenty parallel calls, then fifty one after the other, all on valid requests."""
    script: list[Any] = [[Say("all at once"), *(Call("f", {"n": n}) for n in range(20))]]
    script += [[Think(f"step {n}"), Call("g", {"n": n})] for n in range(50)]
    script += [[Freeform("apply_patch", "*** x"), LocalShell(["ls"])], "the end"]
    history: list[JSONObject] = [user("go")]
    async with ScriptedServer(script) as server:
        model = connect(server, wire)
        for _ in script:
            items = done(await ask(model, history, parallel_tool_calls=True))
            history += items
            history += [output(item) for item in items if "call_id" in item]
    assert server.refused == []
    assert sum("call_id" in item and "output" not in item for item in history) == 72
    assert history[-1]["content"][0]["text"] == "the end"


async def test_calls_have_names_and_arguments(
    wire: ModelWire, connect: Any, ask: Any, done: Any
) -> None:
    async with ScriptedServer([[Call("f", {"a": ["é", 1]}, call_id="c1"), Call("g")]]) as server:
        one, two = done(await ask(connect(server, wire)))
    assert (one["name"], json.loads(one["arguments"]), one["call_id"]) == (
        "f",
        {"a": ["é", 1]},
        "c1",
    )
    assert (two["name"], json.loads(two["arguments"])) == ("g", {})
    assert two["call_id"] not in ("", "c1")


async def test_reasoning_goes_back_to_its_own_wire(
    wire: ModelWire, connect: Any, ask: Any, done: Any
) -> None:
    async with ScriptedServer([[Think("deep"), Call("f")], "ok"]) as server:
        model = connect(server, wire)
        history = [user("x")]
        history += done(await ask(model, history))
        history.append(output(history[-1]))
        await ask(model, history)
    sent = json.dumps(server.requests[1].body)
    assert "deep" in sent
    assert server.refused == []


async def test_reasoning_of_another_wire_is_left_out(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    foreign = [
        {"type": "reasoning", "summary": [{"text": "mine"}], "anthropic": {"signature": "s"}},
        {"type": "reasoning", "summary": [], "content": [{"text": "mine"}], "chat": {"field": "r"}},
        {"type": "reasoning", "summary": [{"text": "mine"}], "encrypted_content": "e"},
    ]
    index = {"anthropic": 0, "chat": 1, "responses": 2}[wire]
    async with ScriptedServer(["ok"]) as server:
        history = [user("x"), *(item for n, item in enumerate(foreign) if n != index), user("y")]
        await ask(connect(server, wire), history)
    assert "mine" not in json.dumps(server.requests[0].body)


async def test_images_are_seen_on_every_wire(wire: ModelWire, connect: Any, ask: Any) -> None:
    call = {"type": "function_call", "name": "view_image", "arguments": "{}", "call_id": "c"}
    picture = {"type": "input_image", "image_url": PIXEL}
    history = [
        {
            "type": "message",
            "role": "user",
            "content": [picture, {"type": "input_text", "text": "?"}],
        },
        call,
        output(call, [picture, {"type": "input_text", "text": "a dot"}]),
    ]
    async with ScriptedServer(["ok", "ok"]) as server:
        await ask(connect(server, wire), history)
        blind = connect(server, wire, profile=HOSTED.__class__(images=False))
        await ask(blind, history)
    data = PIXEL.partition(",")[2]
    assert json.dumps(server.requests[0].body).count(data) == 2
    assert data not in json.dumps(server.requests[1].body)
    assert "image left out" in json.dumps(server.requests[1].body)
    assert server.refused == []


async def test_usage_is_known_on_every_wire(wire: ModelWire, connect: Any, ask: Any) -> None:
    usage = Usage(input=50, cached_input=20, output=9, total=59)
    async with ScriptedServer([Reply([Say("x")], usage=usage)]) as server:
        events = await ask(connect(server, wire))
    assert events[-1].usage == usage


async def test_instructions_tools_and_schema_are_sent(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    developer = {"type": "message", "role": "developer", "content": [{"text": "rule two"}]}
    async with ScriptedServer(["ok"]) as server:
        await ask(
            connect(server, wire),
            [developer, user("x")],
            instructions="rule one",
            tools=[{"name": "f", "parameters": {}}],
            output_schema={"type": "object", "title": "wanted"},
        )
    sent = json.dumps(server.requests[0].body)
    assert all(word in sent for word in ("rule one", "rule two", '"name": "f"', "wanted"))


async def test_a_limit_for_the_answer(wire: ModelWire, connect: Any, ask: Any) -> None:
    async with ScriptedServer(["a", "b"]) as server:
        model = connect(server, wire)
        model.max_output_tokens = 777
        await ask(model)
        await ask(model, max_output_tokens=55)
    sent = [json.dumps(request.body) for request in server.requests]
    assert "777" in sent[0]
    assert "55" in sent[1]
    assert "777" not in sent[1]


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([context_full()], "context_window"),
        ([Fail(401, "x", "no")], "auth"),
        ([Fail(404, "x", "no such model")], "not_found"),
        ([Fail(500)], "server"),
        ([Say("half"), Cut()], "stream"),
        ([Call("f"), Cut()], "stream"),
        ([Cut()], "stream"),
        ([Say("x"), Fail(200, "context_length_exceeded", "full")], "context_window"),
        ([Say("x"), Fail(200, "odd", "why")], "stream"),
    ],
)
async def test_faults_have_the_same_kind_on_every_wire(
    wire: ModelWire, connect: Any, ask: Any, done: Any, parts: Any, kind: str
) -> None:
    async with ScriptedServer([parts, "fine again"]) as server:
        model = connect(server, wire)
        with pytest.raises(ModelError) as caught:
            await ask(model)
        assert caught.value.kind == kind
        assert len(done(await ask(model))) == 1


@pytest.mark.parametrize("text", ["{not json", "null", "[1]", "pi" * 150])
async def test_an_event_that_cannot_be_read_breaks_the_stream(
    wire: ModelWire, connect: Any, ask: Any, text: str
) -> None:
    """It was passed over, and so was the "not" in it, or half of a path."""
    async with ScriptedServer([[Say("ok"), Garbage(text), Call("f")]]) as server:
        with pytest.raises(ModelError) as caught:
            await ask(connect(server, wire))
    assert (caught.value.kind, caught.value.retryable) == ("stream", True)
    assert caught.value.message.endswith(f": {text[:200]}")


@pytest.mark.parametrize("text", ["", " ", "[DONE]", "DONE"])
async def test_events_that_hold_nothing_are_passed_over(
    wire: ModelWire, connect: Any, ask: Any, done: Any, text: str
) -> None:
    async with ScriptedServer([[Say("ok"), Garbage(text)]]) as server:
        assert len(done(await ask(connect(server, wire)))) == 1


async def test_an_endless_reply_is_an_error_and_not_asked_for_again(
    wire: ModelWire, connect: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "_LONGEST", 1 << 20)
    async with ScriptedServer([[Say("x" * 4000, chunks=1) for _ in range(300)]]) as server:
        with pytest.raises(ModelError, match="longer than 1 MiB") as caught:
            await ask(connect(server, wire))
    assert not caught.value.retryable


@pytest.mark.slow
async def test_a_slow_server_is_waited_for_and_a_silent_one_is_not(
    wire: ModelWire, connect: Any, ask: Any, done: Any
) -> None:
    async with ScriptedServer([[Say("a"), Pause(0.1), Say("b")], [Pause(300)]]) as server:
        model = connect(server, wire, idle_timeout=60)
        text = "".join(p["text"] for item in done(await ask(model)) for p in item["content"])
        assert text == "ab"
        with pytest.raises(ModelError, match="idle timeout"):
            await ask(connect(server, wire, idle_timeout=1))


async def test_a_closed_stream_leaves_nothing_behind(wire: ModelWire, connect: Any) -> None:
    async with ScriptedServer([[Say("a"), Pause(300)]]) as server:
        stream = connect(server, wire).stream(ModelRequest("m", [user("x")]))
        await anext(stream)
        async with asyncio.timeout(60):
            await stream.aclose()


async def test_two_streams_at_once(wire: ModelWire, connect: Any, ask: Any, done: Any) -> None:
    async with ScriptedServer([[Pause(0.1), Say("x")] for _ in range(4)]) as server:
        model = connect(server, wire)
        answers = await asyncio.gather(*(ask(model) for _ in range(4)))
        assert all(len(done(events)) == 1 for events in answers)


# Requests are valid whatever the history

ids = st.sampled_from(["a", "b", "", "x y.z:0", "é", "l" * 80])
texts = st.sampled_from(["", " ", "hello", "trailing  "])
parts = st.lists(
    st.one_of(
        st.builds(lambda t: {"type": "input_text", "text": t}, texts),
        st.just({"type": "input_image", "image_url": PIXEL}),
        st.just({"type": "unknown"}),
    ),
    max_size=2,
)
items = st.one_of(
    st.builds(
        lambda role, content: {"type": "message", "role": role, "content": content},
        st.sampled_from(["user", "developer", "assistant"]),
        parts,
    ),
    st.builds(
        lambda name, arguments, call_id: {
            "type": "function_call",
            "name": name,
            "arguments": arguments,
            "call_id": call_id,
        },
        st.sampled_from(["f", "", "no good!", "é" * 90]),
        st.sampled_from(["{}", '{"a": 1}', "{broken", "[]", ""]),
        ids,
    ),
    st.builds(
        lambda call_id: {"type": "custom_tool_call", "name": "p", "input": "x", "call_id": call_id},
        ids,
    ),
    st.builds(
        lambda call_id: {"type": "local_shell_call", "id": call_id, "action": {"command": ["ls"]}},
        ids,
    ),
    st.builds(
        lambda call_id: {"type": "view_image_call", "image_path": "x", "call_id": call_id}, ids
    ),
    st.builds(
        lambda kind, call_id, out: {"type": kind, "call_id": call_id, "output": out},
        st.sampled_from(["function_call_output", "custom_tool_call_output"]),
        ids,
        st.one_of(texts, parts),
    ),
    st.just({"type": "reasoning", "summary": [{"text": "t"}], "anthropic": {"signature": "s"}}),
    st.just(
        {"type": "reasoning", "summary": [], "content": [{"text": "t"}], "chat": {"field": "r"}}
    ),
    st.just({"type": "web_search_call", "status": "completed"}),
    st.just({"type": "compaction", "encrypted_content": "x"}),
    st.just({"type": "nonsense"}),
)


@given(
    st.lists(items, max_size=20),
    st.integers(0, 20),
    st.sampled_from(WIRES),
    st.sampled_from([OPENAI, HOSTED, LOCAL]),
)
def test_any_history_makes_a_valid_request(
    history: list[JSONObject], stop: int, wire: ModelWire, profile: Any
) -> None:
    history = [user("start"), *(dict(item) for item in history)]
    model = client_for(Provider("x", SafeUrl("http://127.0.0.1:1"), wire, profile=profile), "m")
    for items in (history[: stop + 1], history):
        body = json.loads(model.body(ModelRequest("m", items)))
        assert list(problems(wire, body)) == []
    again = client_for(Provider("x", SafeUrl("http://127.0.0.1:1"), wire, profile=profile), "m")
    fresh = json.loads(again.body(ModelRequest("m", history)))
    key = "input" if wire == "responses" else "messages"
    assert _plain(fresh[key]) == _plain(body[key])


def _plain(messages: list[JSONObject]) -> list[JSONObject]:
    """Without the marks for a cache, which depend on what was asked before."""
    made: list[JSONObject] = json.loads(json.dumps(messages))
    for message in made:
        for block in message["content"] if isinstance(message.get("content"), list) else []:
            block.pop("cache_control", None)
    return made


# Servers that lack something


def picture(text: str) -> JSONObject:
    shown = [{"type": "input_image", "image_url": PIXEL}, {"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": shown}


async def test_a_server_without_eyes_gets_the_request_once_more_without_images(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    """It used to fail, and every later request of the session with it."""
    blind = Fail(500, "server_error", "image input is not supported - hint: provide the mmproj")
    async with ScriptedServer([blind, "a", "b"]) as server:
        model = connect(server, wire)
        first = await ask(model, [picture("one")])
        second = await ask(model, [picture("one"), user("two"), picture("three")])
    sent = [json.dumps(request.body) for request in server.requests]
    assert [PIXEL[22:60] in body for body in sent] == [True, False, False]
    assert all(text in sent[2] for text in ("one", "two", "three"))
    notices = [[e for e in events if isinstance(e, Notice)] for events in (first, second)]
    assert [len(found) for found in notices] == [1, 0]
    assert "takes no images" in notices[0][0].text


REFUSALS = {
    "responses": "The encrypted content gAAA could not be verified.",
    "chat": "litellm.BadRequestError: messages.1: Invalid `signature` in `thinking` block",
    "anthropic": "messages.1.content.0: Invalid `signature` in `thinking` block",
}


async def test_reasoning_that_the_server_cannot_read_is_left_out(
    wire: ModelWire, connect: Any, ask: Any, done: Any
) -> None:
    """It comes from another provider or account; without this no later request would pass."""
    refusal = Fail(400, "invalid_request_error", REFUSALS[wire])
    script: list[Any] = [[Think("old", "s1"), Call("f")], refusal, [Think("new", "s2"), Call("f")]]
    async with ScriptedServer([*script, "ok"]) as server:
        model = connect(server, wire, profile=replace(HOSTED, reasoning="always"))
        history = [user("x")]
        history += done(await ask(model, history))
        history.append(output(history[-1]))
        events = await ask(model, history)
        assert any(isinstance(event, Notice) and "reasoning" in event.text for event in events)
        history += done(events)
        history.append(output(history[-1]))
        await ask(model, history)
    sent = [json.dumps(request.body) for request in server.requests]
    assert ["old" in body for body in sent[1:]] == [True, False, False]
    assert "new" in sent[3]
    assert server.refused == []


def test_items_without_their_reasoning_have_no_id() -> None:
    """OpenAI's API would ask for the reasoning of a call that it knows by its id."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    call = {"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}", "call_id": "c"}
    refused = RefusedReasoning()
    assert refused.add([thought, call])
    assert not refused.add([thought, call])
    assert refused.without([thought, call]) == [{key: call[key] for key in call if key != "id"}]


async def test_the_window_is_learned_from_an_overflow(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    async with ScriptedServer([context_full("maximum context length is 4096 tokens")]) as server:
        model = connect(server, wire)
        assert model.context_window is None
        with pytest.raises(ModelError):
            await ask(model)
    assert model.context_window == 4096


async def test_a_missing_version_in_the_address_is_named(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    async with ScriptedServer([Fail(404, "not_found", "no such page")] * 2) as server:
        with pytest.raises(ModelError) as with_version:
            await ask(connect(server, wire))
        address = SafeUrl(server.url.removesuffix("/v1"))
        bare = Provider("mine", address, wire, request_max_retries=0)
        model = client_for(bare, "scripted")
        with pytest.raises(ModelError) as without:
            await ask(model)
        await model.aclose()
    assert "has no version" not in str(with_version.value)
    assert "'mine' has no version" in str(without.value)
    assert str(without.value).count(f"most servers want {server.url}.") == 1


async def test_without_a_developer_role_only_the_start_instructs(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    """Templates of local models raise on a later system message."""
    profile = replace(OPENAI, developer_role=False)
    told = {"type": "message", "role": "developer", "content": [{"text": "first rule"}]}
    later = {"type": "message", "role": "developer", "content": [{"text": "later rule"}]}
    async with ScriptedServer(["ok"]) as server:
        model = connect(server, wire, profile=profile)
        await ask(model, [told, user("x"), later], instructions="be brief")
    body = server.requests[0].body
    messages = body["input"] if wire == "responses" else body["messages"]
    roles = [message["role"] for message in messages]
    assert "developer" not in roles
    assert "system" not in roles[1:]
    start = json.dumps(body.get("instructions") or body.get("system") or messages[0])
    assert "be brief" in start
    assert "first rule" in start
    assert "later rule" not in start
    assert "later rule" in json.dumps(messages)


async def test_without_a_developer_role_the_users_messages_in_a_row_are_one(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    """Templates of local models raise when user and assistant do not take turns."""
    said = {"type": "message", "role": "assistant", "content": [{"text": "so"}]}
    plain = {"type": "message", "role": "user", "content": "three"}
    async with ScriptedServer(["ok"]) as server:
        model = connect(server, wire, profile=replace(OPENAI, developer_role=False))
        await ask(model, [user("one"), picture("two"), said, plain, user("four"), user("five")])
    body = server.requests[0].body
    messages = body["input"] if wire == "responses" else body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert all(text in json.dumps(messages[0]) for text in ("one", "two", PIXEL[22:60]))
    assert all(text in json.dumps(messages[2]) for text in ("three", "four", "five"))


# Options of requests


OPTIONS = {"temperature": 0.5, "top_p": 0.9, "stop": ("END",), "tool_choice": "required"}
TOOL = {
    "responses": {"type": "function", "name": "f", "parameters": {"type": "object"}},
    "chat": {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    "anthropic": {"name": "f", "input_schema": {"type": "object"}},
}


async def test_options_are_sent_and_one_models_win(wire: ModelWire, connect: Any, ask: Any) -> None:
    extra = {"extra_body": {"top_k": 5, "metadata": {"a": 1}}}
    given = {"": {**OPTIONS, **extra}, "scripted": {"temperature": 0.1}, "other": {"top_p": 0.5}}
    async with ScriptedServer(["ok", "ok"]) as server:
        model = connect(server, wire, requests=given)
        await ask(model, tools=[TOOL[wire]])
        await ask(model)  # a summary, say: no tools, so nothing is required
    first, second = (request.body for request in server.requests)
    assert (first["temperature"], first["top_p"], first["top_k"]) == (0.1, 0.9, 5)
    assert first["stop_sequences" if wire == "anthropic" else "stop"] == ["END"]
    assert first["metadata"] == {"a": 1}
    choice = first["tool_choice"]
    assert (choice["type"] if wire == "anthropic" else choice) in ("required", "any")
    assert "required" not in json.dumps(second.get("tool_choice"))


async def test_every_option_of_its_own(wire: ModelWire, connect: Any, ask: Any) -> None:
    given = {"": {"parallel_tool_calls": False, "tool_choice": "none", "extra_body": {"a": 1}}}
    given["scripted"] = {"temperature": 0.5, "extra_body": {"b": {"c": 2}, "temperature": 0.2}}
    if wire == "chat":
        given[""]["seed"] = 7
    async with ScriptedServer(["ok"]) as server:
        await ask(connect(server, wire, requests=given), tools=[TOOL[wire]])
    body = server.requests[0].body
    assert (body["a"], body["b"]) == (1, {"c": 2})  # one model's and every model's
    assert body["temperature"] == 0.2  # `extra_body` is merged last
    assert body.get("seed") == (7 if wire == "chat" else None)
    choice = {"type": "none"} if wire == "anthropic" else "none"
    assert body["tool_choice"] == choice
    if wire != "anthropic":
        assert body["parallel_tool_calls"] is False


async def test_a_field_of_any_name_is_one_field(wire: ModelWire, connect: Any, ask: Any) -> None:
    odd = 'a": 1, "model": "another\n\\ü'
    async with ScriptedServer(["ok"]) as server:
        await ask(connect(server, wire, requests={"": {"extra_body": {odd: 2}}}))
    body = server.requests[0].body
    assert body[odd] == 2
    assert body["model"] == "scripted"


async def test_a_server_that_repeats_a_secret_of_the_body(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    given = {"": {"extra_body": {"provider": {"api_key": "open-sesame-1234"}}}}
    refusal = Fail(400, "invalid", "api_key open-sesame-1234 is wrong")
    async with ScriptedServer([refusal]) as server:
        with pytest.raises(ModelError) as error:
            await ask(connect(server, wire, requests=given))
    assert "open-sesame" not in str(error.value)
    assert "is wrong" in str(error.value)


async def test_an_answer_in_one_piece(wire: ModelWire, connect: Any, ask: Any, done: Any) -> None:
    async with ScriptedServer([[Say("whole"), Call("f", {"a": 1})]]) as server:
        model = connect(server, wire, requests={"": {"stream": False}})
        items = done(await ask(model))
    assert server.requests[0].body["stream"] is False
    assert "stream_options" not in server.requests[0].body
    assert [item["type"] for item in items] == ["message", "function_call"]


@pytest.mark.slow
async def test_the_first_token_has_a_limit_of_its_own(
    wire: ModelWire, connect: Any, ask: Any
) -> None:
    async with ScriptedServer([[Pause(30), Say("late")]]) as server:
        given = {"": {"first_token_timeout_ms": 200}}
        with pytest.raises(ModelError, match=r"did not begin to answer within 0\.2 s"):
            await ask(connect(server, wire, requests=given))
    async with ScriptedServer([[Pause(0.5), Say("late")]]) as server:
        given = {"": {"first_token_timeout_ms": 30_000}}
        assert await ask(connect(server, wire, requests=given, idle_timeout=0.2))


@pytest.mark.parametrize("wire", WIRES)
async def test_the_number_and_the_schema_subset_of_tools_act_on_every_wire(
    wire: ModelWire, tmp_path: Path, ask: Any
) -> None:
    @tool(mutating=False)
    def aaa(mode: Literal["fast", "exact"], count: int = 3) -> str:
        """A tool that comes first of the user's own."""
        return mode

    names = {"tools.enabled": ["aaa", "read_file"]}
    rest = Toolrest(tmp_path, tools=[aaa, "files"], settings=names)
    profile = Profile(max_tools=2, schema_subset="codex")
    async with ScriptedServer(["fine", "fine"]) as server:
        for limits in (profile, Profile(max_tools=1)):
            model = client_for(Provider("p", SafeUrl(server.url), wire, profile=limits), "m")
            await ask(model, tools=rest.specs(wire))
            await model.aclose()
    two, one = (request.body["tools"] for request in server.requests)
    assert (len(two), len(one)) == (2, 1)
    body = two[-1].get("function", two[-1])
    schema = body.get("parameters", body.get("input_schema"))
    assert schema["properties"] == {
        "mode": {"type": "string", "description": "One of: fast, exact."},
        "count": {"type": "number"},
    }
    assert list(schema["properties"]) == ["mode", "count"]
    rest_of = one[0].get("function", one[0])
    assert rest_of["name"] == "read_file"
