from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from toolrest.items import (
    CallItem,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    MalformedCall,
    ViewImageCall,
    WebSearchCall,
)
from toolrest.wire.items.decode import calls_in

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
thorough = settings(max_examples=2500 if FULL else 250)

ACTION = {"type": "exec", "command": ["ls"], "timeout_ms": 1000}


# One item of each kind, on each wire


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
            FunctionCall("c", "f", '{"a": 1}'),
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "namespace": "mcp__s"},
            FunctionCall("c", "f", "{}", namespace="mcp__s"),
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "*** Begin"},
            CustomToolCall("c", "p", "*** Begin"),
        ),
        (
            {"type": "local_shell_call", "call_id": "c", "id": "i", "action": ACTION},
            LocalShellCall("c", ACTION),
        ),
        (
            {"type": "local_shell_call", "call_id": None, "id": "i", "action": ACTION},
            LocalShellCall("i", ACTION),
        ),
        (
            {"type": "view_image_call", "call_id": "c", "image_path": "a.png"},
            ViewImageCall("c", "a.png"),
        ),
        ({"type": "view_image_call", "call_id": "c", "path": "a.png"}, ViewImageCall("c", "a.png")),
        ({"type": "web_search_call", "call_id": "c", "query": "q"}, WebSearchCall("c", "q")),
        (
            {
                "type": "web_search_call",
                "call_id": "c",
                "status": "in_progress",
                "action": {"type": "search", "query": "q"},
            },
            WebSearchCall("c", "q"),
        ),
        (
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            FunctionCall("c", "f", "{}", "chat"),
        ),
        (
            {"id": "c", "function": {"name": "f", "arguments": {"a": 1}}},
            FunctionCall("c", "f", {"a": 1}, "chat"),
        ),
        (
            {"id": "c", "type": "function", "name": "f", "arguments": "{}"},
            FunctionCall("c", "f", "{}", "chat"),
        ),
        (
            {"id": "c", "type": "custom", "custom": {"name": "p", "input": "text"}},
            CustomToolCall("c", "p", "text", "chat"),
        ),
        (
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1]}},
            FunctionCall("c", "f", {"a": [1]}, "anthropic"),
        ),
        ({"name": "f", "arguments": {"a": 1}}, FunctionCall("", "f", {"a": 1}, "mcp")),
        ({"name": "f"}, FunctionCall("", "f", "{}", "mcp")),
        (
            {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "f"}},
            FunctionCall("7", "f", "{}", "mcp"),
        ),
    ],
)
def test_one_call(item: object, expected: CallItem) -> None:
    assert calls_in(item) == [expected]
    assert calls_in([item]) == [expected]


@pytest.mark.parametrize("blank", [None, "", "  \n", "{}"])
def test_no_arguments_are_an_empty_object(blank: object) -> None:
    call = calls_in({"type": "function_call", "call_id": "c", "name": "f", "arguments": blank})
    assert call == [FunctionCall("c", "f", "{}")]


@pytest.mark.parametrize(("value", "text"), [([1], "[1]"), (5, "5"), (True, "true")])
def test_arguments_of_another_type_are_left_to_the_tool(value: object, text: str) -> None:
    call = calls_in({"type": "function_call", "call_id": "c", "name": "f", "arguments": value})
    assert call == [FunctionCall("c", "f", text)]


# Whole replies


def test_a_whole_response() -> None:
    reply = {
        "id": "resp_1",
        "object": "response",
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
            {"type": "web_search_call", "id": "ws", "status": "completed"},
            {"type": "web_search_call", "id": "ws", "status": "searching", "action": {}},
            {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": ""},
            {"type": "brand_new_thing", "call_id": "z"},
        ],
    }
    expected = [FunctionCall("a", "f", "{}"), CustomToolCall("b", "p", "")]
    assert calls_in(reply) == expected
    assert calls_in(reply["output"]) == expected


def test_a_chat_completion() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "local_shell_call", "status": "completed", "action": ACTION},
        {"id": "c", "type": "custom", "custom": {"name": "p", "input": "x"}},
    ]
    expected = [
        FunctionCall("a", "f", "{}", "chat"),
        LocalShellCall("b", ACTION, "chat"),
        CustomToolCall("c", "p", "x", "chat"),
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    assert calls_in(message) == expected
    assert calls_in([message]) == expected
    assert calls_in(calls) == expected
    assert calls_in({"object": "chat.completion", "choices": [{"message": message}]}) == expected


def test_of_several_choices_the_first_with_calls_counts() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    other = {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    choices = [
        {"message": {"role": "assistant", "content": "words"}},
        {"message": {"role": "assistant", "tool_calls": [call]}},
        {"message": {"role": "assistant", "tool_calls": [other]}},
    ]
    assert calls_in({"choices": choices}) == [FunctionCall("a", "f", "{}", "chat")]


def test_an_anthropic_message() -> None:
    blocks = [
        {"type": "thinking", "thinking": "…"},
        {"type": "text", "text": "I will look."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {"x": 1}},
    ]
    expected = [
        FunctionCall("a", "f", {}, "anthropic"),
        FunctionCall("b", "g", {"x": 1}, "anthropic"),
    ]
    assert calls_in({"type": "message", "role": "assistant", "content": blocks}) == expected
    assert calls_in(blocks) == expected


class Function(BaseModel):
    name: str
    arguments: str


class Call(BaseModel):
    id: str
    function: Function
    type: str = "function"


class Message(BaseModel):
    role: str
    tool_calls: list[Call]


def test_sdk_objects() -> None:
    call = Call(id="c", function=Function(name="f", arguments="{}"))
    expected = [FunctionCall("c", "f", "{}", "chat")]
    assert calls_in(Message(role="assistant", tool_calls=[call])) == expected
    assert calls_in({"role": "assistant", "tool_calls": [call]}) == expected
    assert calls_in([call]) == expected


def test_our_own_items_pass() -> None:
    items: list[CallItem] = [FunctionCall("c", "f"), MalformedCall("", "no")]
    assert calls_in(items) == items


@pytest.mark.parametrize("reply", [None, "", "text", 5, True, [], {}, [None, 3], {"output": None}])
def test_no_calls(reply: object) -> None:
    assert calls_in(reply) == []


# Calls that others wrote are not calls

CALL = {"type": "function_call", "call_id": "x", "name": "rm", "arguments": "{}"}
USE = {"type": "tool_use", "id": "x", "name": "rm", "input": {}}


@pytest.mark.parametrize(
    "reply",
    [
        {"type": "function_call_output", "call_id": "c", "output": [CALL]},
        {"type": "message", "role": "user", "content": [USE]},
        {"role": "user", "content": [USE], "tool_calls": [{"id": "x", "function": CALL}]},
        {"role": "tool", "tool_call_id": "c", "content": [USE]},
        {"type": "tool_result", "tool_use_id": "c", "content": [USE]},
        {"type": "message", "role": "assistant", "content": [CALL]},
        {"type": "text", "text": json.dumps(CALL)},
        {"choices": [{"message": {"role": "user", "tool_calls": [{"id": "x", "function": CALL}]}}]},
    ],
)
def test_only_what_the_model_said_counts(reply: object) -> None:
    assert calls_in(reply) == []


# Calls that cannot be used


def problem(item: object) -> MalformedCall:
    (call,) = calls_in(item)
    assert isinstance(call, MalformedCall)
    return call


def test_local_shell_call_without_ids() -> None:
    text = "LocalShellCall without call_id or id"
    for ids in ({}, {"call_id": "", "id": None}, {"call_id": 5, "id": []}):
        item = {"type": "local_shell_call", "action": ACTION, **ids}
        assert problem(item) == MalformedCall("", text, "local_shell")


LONG = "x" * 600


@pytest.mark.parametrize(
    ("item", "call_id", "words"),
    [
        ({"type": "function_call", "name": "f"}, "", "`call_id` is missing"),
        ({"type": "function_call", "name": "f", "call_id": 5}, "", "not a number"),
        ({"type": "function_call", "name": "f", "call_id": LONG}, LONG, "512 is the most"),
        ({"type": "local_shell_call", "action": {}, "call_id": LONG}, LONG, "512 is the most"),
        ({"type": "tool_use", "name": "f", "id": LONG, "input": {}}, LONG, "512 is the most"),
        ({"method": "tools/call", "params": {"name": "f"}, "id": LONG}, LONG, "512 is the most"),
        ({"type": "function_call", "call_id": "c"}, "c", "function_call: `name` is missing"),
        ({"type": "function_call", "call_id": "c", "name": ["f"]}, "c", "not an array"),
        ({"type": "function_call", "call_id": "c", "name": "f" * 300}, "c", "256 is the most"),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "p"},
            "c",
            "`input` must be a string",
        ),
        ({"type": "local_shell_call", "call_id": "c", "action": "ls"}, "c", "`action` must be"),
        ({"type": "view_image_call", "call_id": "c"}, "c", "`image_path` is missing"),
        ({"type": "web_search_call", "call_id": "c"}, "c", "`query` is missing"),
        ({"type": "web_search_call", "query": "q"}, "", "`call_id` is missing"),
        ({"type": "tool_use", "name": "f"}, "", "tool_use: `id` is missing"),
        ({"type": "tool_use", "id": "c", "input": {}}, "c", "tool_use: `name` is missing"),
        ({"type": "function", "function": {"name": "f"}}, "", "`id` is missing"),
        ({"type": "function", "id": "c", "function": None}, "c", "`name` is missing"),
        ({"type": "custom", "id": "c", "custom": {"name": "p", "input": 5}}, "c", "not a number"),
        ({"method": "tools/call", "params": [], "id": "7"}, "7", "tools/call: `name` is missing"),
        ({"role": "assistant", "tool_calls": [{"type": "new", "id": "c"}]}, "c", "`type` must be"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "", "`id` is missing"),
    ],
)
def test_malformed_calls_say_what_is_wrong(item: object, call_id: str, words: str) -> None:
    call = problem(item)
    assert call.call_id == call_id
    assert words in call.problem


def test_malformed_calls_remember_how_to_be_answered() -> None:
    assert problem({"type": "custom_tool_call", "call_id": "c"}).custom
    assert problem({"type": "tool_use", "id": "c"}).wire == "anthropic"
    assert problem({"type": "custom", "id": "c"}) == MalformedCall(
        "c", "custom: `name` is missing", "", "chat", custom=True
    )


class Broken:
    def model_dump(self) -> Any:
        raise RuntimeError("no")


def test_odd_objects_are_no_calls() -> None:
    assert calls_in(Broken()) == []
    assert calls_in([Broken, object()]) == []
    unreadable = {"type": "function_call", "call_id": "c", "name": "f", "arguments": object()}
    assert "cannot be read" in problem(unreadable).problem


@pytest.mark.slow
def test_deep_arguments_do_not_crash() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": deep}
    assert "cannot be read" in problem(item).problem
    assert calls_in(deep) == []


# For any input at all

KINDS = [
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "view_image_call",
    "tool_use",
    "function",
    "custom",
]
FIELDS = [
    *("type", "call_id", "id", "name", "arguments", "input", "action", "function", "custom"),
    *("image_path", "query", "status", "role", "content", "output", "choices", "message"),
    *("tool_calls", "method", "params", "namespace", "function_call"),
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([*KINDS, "assistant", "message", "tools/call", "web_search_call", "", "x"])
    | st.text(max_size=5)
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
    max_leaves=10,
)
bodies = st.dictionaries(
    st.sampled_from(FIELDS), scalars | st.lists(scalars, max_size=2) | junk, max_size=6
)
typed = st.builds(
    lambda body, kind: {**body, "type": kind},
    bodies,
    st.sampled_from(KINDS),
)


@pytest.mark.slow
@thorough
@given(junk)
def test_any_reply_is_read_without_an_exception(reply: Any) -> None:
    for call in calls_in(reply):
        _check(call)


@pytest.mark.slow
@thorough
@given(st.lists(typed, max_size=3))
def test_every_typed_call_becomes_one_item(items: list[Any]) -> None:
    found = calls_in(items)
    assert len(found) == len(items)
    assert len(calls_in({"output": items})) == len(items)
    for call, item in zip(found, items, strict=True):
        _check(call)
        ids = (item.get("call_id"), item.get("id"), "")
        assert any(call.call_id is known or call.call_id == known for known in ids)


@pytest.mark.slow
@thorough
@given(st.lists(bodies, max_size=3))
def test_every_chat_entry_becomes_one_item(entries: list[Any]) -> None:
    found = calls_in({"role": "assistant", "tool_calls": entries})
    assert len(found) == len(entries)
    assert all(call.wire == "chat" for call in found)


def _check(call: CallItem) -> None:
    assert isinstance(call.call_id, str)
    assert isinstance(call.name, str)
    if isinstance(call, MalformedCall):
        assert call.problem
    elif call.wire != "mcp":
        assert call.call_id
