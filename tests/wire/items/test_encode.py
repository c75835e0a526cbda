from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolrest.errors import Failure
from toolrest.items import (
    Answered,
    CallItem,
    CustomToolCall,
    FunctionCall,
    Image,
    JSONObject,
    LocalShellCall,
    MalformedCall,
    Text,
    ToolOutput,
    ViewImageCall,
    WebSearchCall,
    Wire,
)
from toolrest.wire.items.decode import calls_in
from toolrest.wire.items.encode import dumps, encode

PNG = "data:image/png;base64,aGk="
PICTURE = ToolOutput([Text("a chart"), Image(PNG)])


def one(item: CallItem, output: ToolOutput, **options: Any) -> JSONObject:
    (encoded,) = encode([Answered(item, output)], **options)
    return encoded


# Responses


@pytest.mark.parametrize(
    ("item", "type_"),
    [
        (FunctionCall("c", "f"), "function_call_output"),
        (LocalShellCall("c", {}), "function_call_output"),
        (MalformedCall("c", "bad"), "function_call_output"),
        (CustomToolCall("c", "p", "x"), "custom_tool_call_output"),
        (MalformedCall("c", "bad", custom=True), "custom_tool_call_output"),
    ],
)
def test_responses_items(item: CallItem, type_: str) -> None:
    assert one(item, ToolOutput("hé")) == {"type": type_, "call_id": "c", "output": "hé"}
    assert one(item, ToolOutput.error("no")) == {"type": type_, "call_id": "c", "output": "no"}
    assert one(item, PICTURE)["output"] == [
        {"type": "input_text", "text": "a chart"},
        {"type": "input_image", "image_url": PNG},
    ]


def test_responses_content_is_text_where_it_can_be() -> None:
    call = FunctionCall("c", "f")
    assert one(call, ToolOutput([]))["output"] == ""
    assert one(call, ToolOutput([Text("one")]))["output"] == "one"
    assert one(call, ToolOutput([Text("a"), Text("b")]))["output"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "b"},
    ]
    assert one(call, ToolOutput([Image(PNG, "high")]))["output"] == [
        {"type": "input_image", "image_url": PNG, "detail": "high"}
    ]


def test_missing_local_shell_id() -> None:
    (item,) = calls_in({"type": "local_shell_call", "action": {}})
    assert isinstance(item, MalformedCall)
    assert one(item, ToolOutput.error(item.problem)) == {
        "type": "function_call_output",
        "call_id": "",
        "output": "LocalShellCall without call_id or id",
    }


def test_view_image_call() -> None:
    call = ViewImageCall("c", "a.png")
    metadata = {"width": 2, "height": 3, "format": "png"}
    assert one(call, ToolOutput([Image(PNG)], metadata=metadata)) == {
        "type": "view_image_call_output",
        "call_id": "c",
        "image_data": PNG,
        "metadata": metadata,
    }
    assert one(call, ToolOutput.error("no such file")) == {
        "type": "view_image_call_output",
        "call_id": "c",
        "image_data": None,
        "metadata": {"error": "no such file"},
    }


def test_web_search_call() -> None:
    call = WebSearchCall("c", "q")
    row = {"title": "T", "url": "https://e.org", "snippet": "S"}
    found = ToolOutput("text", structured=[{**row, "score": 1}, {"title": 5}, "junk"])
    expected = {
        "type": "web_search_call_output",
        "call_id": "c",
        "results": [row, {"title": "", "url": "", "snippet": ""}],
    }
    assert one(call, found) == expected
    wrapped = ToolOutput("text", structured={"results": [row]})
    assert one(call, wrapped)["results"] == [row]
    assert one(call, ToolOutput("only words"))["results"] == [
        {"title": "", "url": "", "snippet": "only words"}
    ]
    failed = one(call, ToolOutput.error("offline"))
    assert (failed["results"], failed["error"]) == ([], "offline")


# Chat Completions


def test_chat_messages() -> None:
    call = FunctionCall("c", "f", wire="chat")
    assert one(call, ToolOutput("x")) == {"role": "tool", "tool_call_id": "c", "content": "x"}
    assert one(call, ToolOutput([Text("a"), Text("b")]))["content"] == "a\nb"
    assert one(call, ToolOutput([Text("t"), Image(PNG, "low"), Image(PNG, "original")])) == {
        "role": "tool",
        "tool_call_id": "c",
        "content": [
            {"type": "text", "text": "t"},
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": PNG}},
        ],
    }


def test_chat_images_in_a_user_message() -> None:
    calls = [FunctionCall(call_id, "look", wire="chat") for call_id in "abc"]
    outputs = [PICTURE, ToolOutput("x"), ToolOutput([Image(PNG)])]
    answered = [Answered(*pair) for pair in zip(calls, outputs, strict=True)]
    image = {"type": "image_url", "image_url": {"url": PNG}}
    assert encode(answered, images="user_message") == [
        {"role": "tool", "tool_call_id": "a", "content": "a chart"},
        {"role": "tool", "tool_call_id": "b", "content": "x"},
        {"role": "tool", "tool_call_id": "c", "content": "The image follows in the next message."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Image from the tool look (call a):"},
                image,
                {"type": "text", "text": "Image from the tool look (call c):"},
                image,
            ],
        },
    ]


# Anthropic Messages


def test_anthropic_results_share_one_message() -> None:
    calls = [FunctionCall(call_id, "f", wire="anthropic") for call_id in "abcd"]
    outputs = [PICTURE, ToolOutput("x"), ToolOutput.error("bad"), ToolOutput("x", success=False)]
    answered = [Answered(*pair) for pair in zip(calls, outputs, strict=True)]
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert encode(answered) == [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [
                        {"type": "text", "text": "a chart"},
                        {"type": "image", "source": source},
                    ],
                },
                {"type": "tool_result", "tool_use_id": "b", "content": "x"},
                {"type": "tool_result", "tool_use_id": "c", "content": "bad", "is_error": True},
                {"type": "tool_result", "tool_use_id": "d", "content": "x"},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("output", "content"),
    [
        (ToolOutput(""), "(no output)"),
        (ToolOutput(" \n"), "(no output)"),
        (ToolOutput([]), "(no output)"),
        (ToolOutput("", failure=Failure("fatal", "")), "(no output)"),
        (ToolOutput([Text(""), Text("b")]), "b"),
        (ToolOutput([Image("data:image/bmp;base64,aGk=")]), "[image left out: image/bmp]"),
        (ToolOutput([Image("data:image/png;base64,%%%")]), "[image left out: unreadable]"),
        (ToolOutput([Image("file:///etc/passwd")]), "[image left out: unreadable]"),
        (
            ToolOutput([Image("https://e.org/a.png")]),
            [{"type": "image", "source": {"type": "url", "url": "https://e.org/a.png"}}],
        ),
        (
            ToolOutput([Image("data:image/png,hi")]),
            [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                }
            ],
        ),
    ],
)
def test_anthropic_never_gets_what_it_refuses(output: ToolOutput, content: object) -> None:
    message = one(FunctionCall("c", "f", wire="anthropic"), output)
    assert message["content"][0]["content"] == content


# MCP


class Row(BaseModel):
    n: int


def test_mcp_results() -> None:
    call = FunctionCall("", "f", wire="mcp")
    assert one(call, PICTURE) == {
        "content": [
            {"type": "text", "text": "a chart"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        ],
        "isError": False,
    }
    assert one(call, ToolOutput.error("no"))["isError"] is True
    assert one(call, ToolOutput("", structured={"a": Row(n=1)}))["structuredContent"] == {
        "a": {"n": 1}
    }
    assert one(call, ToolOutput("", structured=[1]))["structuredContent"] == {"result": [1]}
    assert one(call, ToolOutput([Image("https://e.org/a.png")]))["content"] == [
        {"type": "text", "text": "[image: https://e.org/a.png]"}
    ]


# Order, round trips, text

REPLIES: dict[Wire, Any] = {
    "responses": [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "x"},
        {"type": "local_shell_call", "id": "c", "action": {}},
        {"type": "view_image_call", "call_id": "d", "image_path": "x.png"},
        {"type": "web_search_call", "call_id": "e", "query": "q"},
        {"type": "function_call", "call_id": "f"},
    ],
    "chat": {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "type": "custom", "custom": {"name": "p", "input": "x"}},
            {"id": "c", "type": "local_shell_call", "action": {}},
            {"id": "d", "type": "function", "function": {}},
        ],
    },
    "anthropic": {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            {"type": "tool_use", "id": "b", "name": ""},
        ],
    },
}


@pytest.mark.parametrize("wire", REPLIES)
def test_every_call_gets_one_output_in_order(wire: Wire) -> None:
    calls = calls_in(REPLIES[wire])
    encoded = encode([Answered(call, ToolOutput("ok")) for call in calls])
    results = encoded[0]["content"] if wire == "anthropic" else encoded
    key = {"responses": "call_id", "chat": "tool_call_id", "anthropic": "tool_use_id"}[wire]
    assert [result[key] for result in results] == [call.call_id for call in calls]
    assert all(call.wire == wire for call in calls)


def test_mixed_wires_keep_their_own_shapes() -> None:
    calls: list[CallItem] = [
        FunctionCall("a", "f"),
        FunctionCall("b", "f", wire="anthropic"),
        FunctionCall("c", "f", wire="chat"),
        FunctionCall("d", "f", wire="anthropic"),
    ]
    encoded = encode([Answered(call, ToolOutput("x")) for call in calls])
    assert [item.get("type", item.get("role")) for item in encoded] == [
        "function_call_output",
        "user",
        "tool",
    ]
    assert len(encoded[1]["content"]) == 2
    assert encode([]) == []


@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic", "mcp"])
def test_lone_surrogates_do_not_reach_the_wire(wire: Wire) -> None:
    output = ToolOutput([Text("a\ud800b\ud83d\ude00"), Image(PNG)], structured={"\udfff": "\ud800"})
    item = FunctionCall("c\ud800", "f\ud800", wire=wire)
    encoded = encode([Answered(item, output)], images="user_message")
    text = json.dumps(encoded, ensure_ascii=False)
    assert "a\ufffdb😀" in text.encode().decode()


def test_dumps_is_compact_and_keeps_letters() -> None:
    assert dumps({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'


def test_dumps_takes_anything() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert json.loads(dumps(circle)) == [1, "…"]
    assert json.loads(dumps({"n": float("nan"), 5: {1}, "r": Row(n=2), "t": (1,)})) == {
        "n": "nan",
        "5": [1],
        "r": {"n": 2},
        "t": [1],
    }
    assert dumps("\ud800") == '"\ufffd"'
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    dumps(deep)
    dumps({"big": 10**5000})


@given(st.recursive(st.none() | st.floats() | st.text() | st.binary(), st.lists))
def test_dumps_always_gives_json(value: Any) -> None:
    json.loads(dumps(value).encode())
