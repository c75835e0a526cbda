"""Servers that send anything at all: answers or `ModelError`, never another exception."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.secret import SafeUrl
from toolrest.wire.apis.anthropic_stream import AnthropicParser
from toolrest.wire.apis.chat_stream import ChatParser
from toolrest.wire.apis.responses import ResponsesParser
from toolrest.wire.items.decode import calls_in
from toolrest.wire.model import ItemDone, ModelError, ModelRequest
from toolrest.wire.provider import LOCAL, Provider
from toolrest.wire.providers import client_for
from toolrest.wire.reply import Parser

KEYS = [
    *(
        "type",
        "item",
        "response",
        "delta",
        "index",
        "content_block",
        "usage",
        "id",
        "name",
        "error",
    ),
    *("call_id", "arguments", "status", "message", "choices", "content", "stop_reason", "text"),
    *(
        "partial_json",
        "summary",
        "output",
        "finish_reason",
        "incomplete_details",
        "reason",
        "input",
    ),
]
WORDS = [
    *("response.output_item.done", "response.completed", "response.failed", "response.incomplete"),
    *("response.output_item.added", "response.output_text.delta", "error", "message_start"),
    *("content_block_start", "content_block_delta", "content_block_stop", "message_delta"),
    *("message_stop", "text", "tool_use", "thinking", "function_call", "message", "reasoning", "{"),
]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=10,
)
ITEMS = ["function_call", "message", "reasoning", "custom_tool_call", "local_shell_call"]
items = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from([*ITEMS, "function_call_output", "web_search_call"]),
    st.dictionaries(st.sampled_from([*KEYS, "anthropic", "chat", "role"]), values, max_size=5),
)
events = st.dictionaries(st.sampled_from(KEYS), values, max_size=5) | st.builds(
    lambda item: {"type": "response.output_item.done", "item": item}, items
)


def parsers() -> list[Parser]:
    return [ResponsesParser(), ChatParser(LOCAL, {}), AnthropicParser({})]


@pytest.mark.slow
@pytest.mark.parametrize("which", range(3))
@given(
    stream=st.lists(events, max_size=6),
    whole=events,
    wire=st.sampled_from(["responses", "chat", "anthropic"]),
)
def test_any_events_are_read(which: int, stream: list[Any], whole: Any, wire: Any) -> None:
    parser = parsers()[which]
    made: list[Any] = []
    try:
        for event in stream:
            made += parser.feed(json.dumps(event).encode())
            if parser.completed is not None:
                break
        else:
            made += parser.end()
    except ModelError:
        pass
    with contextlib.suppress(ModelError):
        made += parsers()[which].whole(whole)
    history = [event.item for event in made if isinstance(event, ItemDone)]
    calls_in(history)
    # Whatever came goes back on every wire without a fault.
    model = client_for(Provider("x", SafeUrl("http://127.0.0.1:1"), wire), "m")
    json.loads(model.body(ModelRequest("m", history)))
