from __future__ import annotations

import json
from typing import Any

import pytest

from toolrest.secret import SafeUrl
from toolrest.testing import Call, Fail, ScriptedServer, Think
from toolrest.testing.script import Step
from toolrest.wire.apis.chat import ChatModel
from toolrest.wire.model import Completed, ItemDone, ModelRequest
from toolrest.wire.provider import HOSTED, LOCAL, OPENAI, Profile, Provider

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}


def user(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def body(items: list[Any], profile: Profile = HOSTED, **more: Any) -> dict[str, Any]:
    model = ChatModel(Provider("x", SafeUrl("http://127.0.0.1:1"), "chat", profile=profile), "m")
    made: dict[str, Any] = json.loads(model.body(ModelRequest("m", items, **more)))
    return made


def test_what_is_asked_for() -> None:
    sent = body([user("hi")], tools=[TOOL], instructions="be brief", parallel_tool_calls=True)
    assert sent == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [TOOL],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }


def test_nothing_about_tools_without_tools() -> None:
    assert body([user("hi")]).keys() == {"model", "messages", "stream", "stream_options"}


def test_instructions_are_one_message_where_templates_want_it_so() -> None:
    items = [
        user("one", "developer"),
        user("two", "developer"),
        user("hi"),
        user("three", "developer"),
    ]
    plain = body(items, LOCAL, instructions="zero")["messages"]
    assert plain == [
        {"role": "system", "content": "zero\n\none\n\ntwo"},
        {"role": "user", "content": "hi\n\nthree"},
    ]
    own = body(items, OPENAI, instructions="zero")["messages"]
    assert [m["role"] for m in own] == ["developer", "user", "developer"]


def test_text_and_calls_are_one_message() -> None:
    items = [
        user("go"),
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok"}],
        },
        {"type": "function_call", "name": "f", "arguments": '{"a":1}', "call_id": "c"},
        {"type": "custom_tool_call", "name": "p", "input": "raw", "call_id": "d"},
        {
            "type": "local_shell_call",
            "call_id": "e",
            "action": {"command": ["ls"], "timeout_ms": 5},
        },
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "2"},
        {"type": "function_call_output", "call_id": "e", "output": "3"},
    ]
    messages = body(items)["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "tool"]
    assert messages[1]["content"] == "ok"
    functions = [call["function"] for call in messages[1]["tool_calls"]]
    assert functions == [
        {"name": "f", "arguments": '{"a":1}'},
        {"name": "p", "arguments": '{"input":"raw"}'},
        {"name": "shell", "arguments": '{"command":["ls"],"timeout_ms":5}'},
    ]


def test_images_of_tools() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}
    items = [
        user("go"),
        {"type": "function_call", "name": "v", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
    ]
    shown = body(items)["messages"]
    assert [m["role"] for m in shown] == ["user", "assistant", "tool", "user"]
    assert shown[3]["content"][1]["image_url"] == {
        "url": "data:image/png;base64,AA==",
        "detail": "high",
    }
    inline = body(items, Profile(tool_images="inline"))["messages"]
    assert inline[2]["content"][0]["type"] == "image_url"


@pytest.mark.parametrize(
    ("keeps", "after_tool", "after_user"),
    [("turn", True, False), ("always", True, True), ("never", False, False)],
)
async def test_how_long_reasoning_goes_back(
    connect: Any, ask: Any, done: Any, keeps: Any, after_tool: bool, after_user: bool
) -> None:
    script: list[Step] = [[Think("my thoughts"), Call("f")], "so", "then"]
    async with ScriptedServer(script) as server:
        model = connect(server, "chat", profile=Profile(reasoning=keeps))
        history = [user("go")]
        history += done(await ask(model, history))
        call_id = history[-1]["call_id"]
        history.append({"type": "function_call_output", "call_id": call_id, "output": "x"})
        history += done(await ask(model, history))
        history.append(user("and?"))
        await ask(model, history)
    sent = ["my thoughts" in json.dumps(request.body) for request in server.requests]
    assert sent == [False, after_tool, after_user]
    if after_tool:
        assistant = server.requests[1].body["messages"][1]
        assert assistant["reasoning_content"] == "my thoughts"


async def test_calls_in_text_count_where_the_profile_says_so(
    connect: Any, ask: Any, done: Any
) -> None:
    text = 'Let me.\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    async with ScriptedServer([text, text, text]) as server:
        near = done(await ask(connect(server, "chat", profile=LOCAL), tools=[TOOL]))
        assert [item["type"] for item in near] == ["message", "function_call"]
        assert near[0]["content"][0]["text"] == "Let me."
        far = done(await ask(connect(server, "chat", profile=HOSTED), tools=[TOOL]))
        assert [item["type"] for item in far] == ["message"]
        unasked = done(await ask(connect(server, "chat", profile=LOCAL)))
        assert [item["type"] for item in unasked] == ["message"]


async def test_what_a_server_refuses_is_left_out(connect: Any, ask: Any) -> None:
    def picky(sent: Any) -> Any:
        for name in ("stream_options", "parallel_tool_calls"):
            if name in sent:
                return Fail(
                    400,
                    "x",
                    f"[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), "
                    "'msg': 'Extra inputs are not permitted'}]",
                )
        return "fine"

    async with ScriptedServer([picky] * 4) as server:
        model = connect(server, "chat")
        await ask(model, tools=[TOOL])
        await ask(model, tools=[TOOL])
    assert len(server.requests) == 4
    assert not {"stream_options", "parallel_tool_calls"} & server.requests[3].body.keys()


def test_tools_in_the_form_that_the_endpoint_takes() -> None:
    typed = {"type": "integer", "minimum": 1}
    tools = [
        {
            "type": "function",
            "function": {"name": f"f{n}", "parameters": {"properties": {"a": typed}}},
        }
        for n in range(9)
    ]
    sent = body([user("x")], Profile(max_tools=2, schema_subset="codex"), tools=tools)["tools"]
    assert [tool["function"]["name"] for tool in sent] == ["f0", "f1"]
    assert sent[0]["function"]["parameters"]["properties"]["a"] == {"type": "number"}


def test_a_server_that_cannot_stream() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "reasoning": "hm",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
    }
    document = {
        "id": "x",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    model = ChatModel(Provider("x", SafeUrl("http://127.0.0.1:1"), "chat"), "m")
    parser = model.parser(ModelRequest("m", []))
    events = list(parser.whole(document))
    kinds = [event.item["type"] for event in events if isinstance(event, ItemDone)]
    assert kinds == ["reasoning", "message", "function_call"]
    assert isinstance(parser.completed, Completed)
    assert parser.completed.usage is not None
    assert parser.completed.usage.total == 4
