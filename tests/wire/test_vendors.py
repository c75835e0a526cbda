"""What is special about hosted providers. Bodies follow their published schemas; none is recorded.

Gemini's signatures of calls are in `test_others.py`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.wire.conftest import user
from tests.wire.test_odd_replies import chunk
from tests.wire.test_others import messages

from toolrest.config import default_config
from toolrest.wire.apis.chat_stream import ChatParser
from toolrest.wire.client import HttpModel
from toolrest.wire.model import ItemDone, ModelRequest
from toolrest.wire.model_facts import default_model
from toolrest.wire.presets import BUILT_IN
from toolrest.wire.provider import HOSTED
from toolrest.wire.providers import model_for

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1, "const": 2}},
    "required": ["n"],
    "additionalProperties": False,
}
PIXEL = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
OURS = "call_PTLP8xhu3uwZk4l3nlnrrJha"


def at(name: str, model: str) -> HttpModel:
    settings = {"model": model, "model_provider": name}
    return model_for(default_config(settings), {BUILT_IN[name].env_key or "": "k"})


def body(model: HttpModel, items: list[Any], **more: Any) -> dict[str, Any]:
    request = ModelRequest(model.name, items, "be brief", **more)
    return dict(json.loads(model.body(request)))


def call(call_id: str) -> list[Any]:
    made = {"type": "function_call", "call_id": call_id, "name": "note", "arguments": "{}"}
    return [made, {"type": "function_call_output", "call_id": call_id, "output": "ok"}]


def read(*events: Any, place: str = "") -> tuple[list[Any], Any]:
    """The items of a reply, and its tokens."""
    parser = ChatParser(HOSTED, {}, place=place)
    feeds = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in events]
    made = [found for data in feeds for found in parser.feed(data)]
    assert parser.completed is not None
    return [event.item for event in made if isinstance(event, ItemDone)], parser.completed.usage


def test_mistral_takes_ids_of_nine_letters_and_digits() -> None:
    own = "D681PevKs"
    same = [*call(OURS), user("again"), *call(OURS), user("more"), *call(own)]
    sent_ = messages(at("mistral", "mistral-large-4"), [user("go"), *same])
    calls = [each["tool_calls"][0]["id"] for each in sent_ if "tool_calls" in each]
    outputs = [each["tool_call_id"] for each in sent_ if each["role"] == "tool"]
    assert calls == outputs
    assert len(set(calls)) == 3
    assert calls[2] == own
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in calls)
    assert OURS in json.dumps(messages(at("groq", "openai/gpt-oss-120b"), [user("go"), *same]))


def test_mistral_thinks_in_parts_of_the_content() -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "2 and "}]}]
    items, _ = read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": thinking}),
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "3"}]}]}),
        chunk({"content": [{"type": "text", "text": "The sum is 5"}]}),
        chunk({"content": ""}, "stop"),
        b"[DONE]",
    )
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert items[0]["content"][0]["text"] == "2 and 3"
    assert items[1]["content"][0]["text"] == "The sum is 5"
    again = messages(at("mistral", "mistral-large-4"), [user("add"), *items, user("more")])
    assert again[1] == {"role": "assistant", "content": "The sum is 5"}


def test_mistral_is_not_sent_fields_that_it_forbids() -> None:
    given = body(at("mistral", "mistral-large-4"), [user("?")])
    assert "stream_options" not in given
    assert given.keys() <= {"model", "messages", "stream"}


@pytest.mark.parametrize(
    ("name", "model"), [("deepseek", "deepseek-v4-pro"), ("moonshot", "kimi-k3.1-pro")]
)
def test_reasoning_goes_back_in_every_later_turn(name: str, model: str) -> None:
    """Both refuse a history in which the reasoning of an earlier turn with calls is missing."""
    function = {"name": "note", "arguments": "{}"}
    items, usage = read(
        chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
        chunk({"reasoning_content": "I should note that."}),
        chunk({"tool_calls": [{"index": 0, "id": "call_00_x", "function": function}]}),
        {
            **chunk({"content": ""}, "tool_calls"),
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
                "completion_tokens_details": {"reasoning_tokens": 12},
            },
        },
        b"[DONE]",
    )
    assert (usage.input, usage.cached_input, usage.reasoning_output) == (100, 64, 12)
    output = {"type": "function_call_output", "call_id": "call_00_x", "output": "ok"}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x"}],
    }
    history = [user("go"), *items, output, said, user("and now?")]
    assert messages(at(name, model), history)[1]["reasoning_content"] == "I should note that."
    assert "reasoning_content" not in json.dumps(messages(at("openrouter", model), history))


@pytest.mark.parametrize("name", ["deepseek", "groq"])
def test_an_answer_with_a_schema_is_asked_for_in_words(name: str) -> None:
    given = body(at(name, "m"), [user("?")], output_schema=SCHEMA)
    assert "response_format" not in given
    assert "JSON" in given["messages"][0]["content"]
    assert "response_format" in body(at("openrouter", "m"), [user("?")], output_schema=SCHEMA)


def test_deepseek_is_shown_no_image() -> None:
    message = {"type": "message", "role": "user", "content": [PIXEL]}
    assert "image_url" not in json.dumps(body(at("deepseek", "deepseek-v4-pro"), [message]))


def test_xai_has_instructions_in_their_field_and_gets_its_reasoning_back() -> None:
    developer = {**user("work in /tea"), "role": "developer"}
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk"}
    given = body(at("xai", "grok-4.7"), [developer, user("?"), sealed, *call("c"), user("on")])
    assert given["instructions"] == "be brief\n\nwork in /tea"
    assert "developer" not in json.dumps(given["input"])
    assert sealed in given["input"]
    assert (given["store"], given["include"]) == (False, ["reasoning.encrypted_content"])


def test_geminis_schemas_have_plain_types() -> None:
    function = {"name": "note", "parameters": SCHEMA}
    given = body(
        at("gemini", "gemini-4-argon"),
        [user("?")],
        tools=[{"type": "function", "function": function}],
    )
    parameters = given["tools"][0]["function"]["parameters"]
    assert "const" not in json.dumps(parameters)
    assert parameters["required"] == ["n"]


@pytest.mark.parametrize("name", [name for name, row in BUILT_IN.items() if row.line])
def test_models_of_every_hosted_row_belong_to_a_family(name: str) -> None:
    """Or each session would begin with a note that the model is unknown."""
    config = default_config({})
    model = default_model(config, name)
    assert default_config({"model": model}).family.name != "unknown"
