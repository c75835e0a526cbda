"""The corpus of R-61: how servers really stream tool calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.wire.apis.chat_messages import chat_messages
from toolrest.wire.apis.chat_stream import ChatParser, Endings
from toolrest.wire.model import ItemDone, ModelError, ModelEvent, ReasoningDelta
from toolrest.wire.provider import HOSTED, LOCAL, Profile

SCHEMAS: dict[str, dict[str, Any]] = {
    "f": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    "g": {"properties": {}},
}


def run(
    chunks: list[Any],
    profile: Profile = LOCAL,
    *,
    done: bool = True,
    endings: Endings | None = None,
) -> list[ModelEvent]:
    parser = ChatParser(profile, SCHEMAS, endings=endings)
    events: list[ModelEvent] = []
    for chunk in chunks:
        events += parser.feed(json.dumps(chunk).encode())
    events += parser.feed(b"[DONE]") if done else parser.end()
    assert parser.completed is not None
    return events


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish, **more}]}


def piece(arguments: Any = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    function = {} if name is None else {"name": name}
    if arguments is not None:
        function["arguments"] = arguments
    return {"tool_calls": [{**more, "function": function}]}


def calls(events: list[ModelEvent]) -> list[tuple[str, Any]]:
    items = [event.item for event in events if isinstance(event, ItemDone)]
    made = [item for item in items if item["type"] == "function_call"]
    assert len({item["call_id"] for item in made}) == len(made)
    assert all(item["call_id"] for item in made)
    return [(item["name"], json.loads(item["arguments"])) for item in made]


END = chunk(finish="tool_calls")
CORPUS: dict[str, tuple[list[Any], list[tuple[str, Any]]]] = {
    "as OpenAI does": (
        [
            chunk(piece("", "f", index=0, id="x", type="function")),
            chunk(piece('{"a"', index=0)),
            chunk(piece(":1}", index=0)),
            chunk(piece("", "g", index=1, id="y")),
            chunk(piece("{}", index=1)),
            END,
        ],
        [("f", {"a": 1}), ("g", {})],
    ),
    "missing id": (
        [chunk(piece('{"a":1}', "f", index=0)), chunk(piece("{}", "g", index=1)), END],
        [("f", {"a": 1}), ("g", {})],
    ),
    "missing index": (
        [
            chunk(piece('{"a":', "f", id="x")),
            chunk(piece("1}", id="x")),
            chunk(piece("{}", "g", id="y")),
            END,
        ],
        [("f", {"a": 1}), ("g", {})],
    ),
    "missing index and id": (
        [
            chunk(piece('{"a":', "f")),
            chunk(piece("1}")),
            chunk(piece("{}", "g")),
            chunk(piece('{"a":2}', "f")),
            chunk(piece('{"a":3}', "f")),
            END,
        ],
        [("f", {"a": 1}), ("g", {}), ("f", {"a": 2}), ("f", {"a": 3})],
    ),
    "same index for siblings": (
        [
            chunk(piece('{"a":1}', "f", index=0, id="x")),
            chunk(piece('{"a":', "f", index=0, id="y")),
            chunk(piece("2}", index=0)),
            END,
        ],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "same id for siblings": (
        [
            chunk(piece('{"a":1}', "f", index=0, id="x")),
            chunk(piece('{"a":', "f", index=1, id="x")),
            chunk(piece("2}", index=1, id="x")),
            END,
        ],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "id only on the first chunk": (
        [
            chunk(piece("", "f", index=0, id="x")),
            chunk(piece('{"b":"', index=0, id=None)),
            chunk(piece('y"}', index=0, id="")),
            END,
        ],
        [("f", {"b": "y"})],
    ),
    "another id on every chunk": (
        [
            chunk(piece("", "f", index=0, id="1")),
            chunk(piece('{"a"', index=0, id="2")),
            chunk(piece(":1}", index=0, id="3")),
            END,
        ],
        [("f", {"a": 1})],
    ),
    "name repeated": (
        [
            chunk(piece('{"a"', "f", index=0, id="x")),
            chunk(piece(":1}", "f", index=0, id="x")),
            END,
        ],
        [("f", {"a": 1})],
    ),
    "name repeated, no id": (
        [chunk(piece('{"a"', "f", index=0)), chunk(piece(":1}", "f", index=0)), END],
        [("f", {"a": 1})],
    ),
    "arguments as an object": ([chunk(piece({"a": 1}, "f", id="x")), END], [("f", {"a": 1})]),
    "arguments null": ([chunk(piece(None, "g", index=0, id="x")), END], [("g", {})]),
    "arguments empty": ([chunk(piece("", "g", index=0, id="x")), END], [("g", {})]),
    "arguments sent anew": (
        [
            chunk(piece('{"a"', "f", index=0, id="x")),
            chunk(piece('{"a":1}', index=0)),
            END,
        ],
        [("f", {"a": 1})],
    ),
    "two objects run together": (
        [chunk(piece('{"a":1}{"a":2}', "f", index=0, id="x")), END],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "finish stop with calls": (
        [chunk(piece('{"a":1}', "f", index=0, id="x")), chunk(finish="stop")],
        [("f", {"a": 1})],
    ),
    "calls and finish in one chunk": (
        [chunk(piece('{"a":1}', "f", index=0, id="x"), "tool_calls")],
        [("f", {"a": 1})],
    ),
    "calls in a final message": (
        [
            chunk({"content": "so"}),
            chunk(
                finish="tool_calls",
                message={
                    "role": "assistant",
                    "content": "so",
                    "tool_calls": [
                        {"id": "x", "function": {"name": "f", "arguments": '{"a":1}'}},
                        {"id": "y", "function": {"name": "g", "arguments": {}}},
                    ],
                },
            ),
        ],
        [("f", {"a": 1}), ("g", {})],
    ),
    "the old function_call": (
        [
            chunk({"function_call": {"name": "f", "arguments": '{"a"'}}),
            chunk({"function_call": {"arguments": ":1}"}}),
            chunk(finish="function_call"),
        ],
        [("f", {"a": 1})],
    ),
    "several calls in one chunk, as Ollama": (
        [
            chunk(
                {
                    "tool_calls": [
                        {"id": "a", "index": 0, "function": {"name": "f", "arguments": '{"a":1}'}},
                        {"id": "b", "index": 0, "function": {"name": "f", "arguments": '{"a":2}'}},
                    ]
                },
                "stop",
            )
        ],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
}


@pytest.mark.parametrize("name", CORPUS)
def test_calls_are_put_together(name: str) -> None:
    chunks, expected = CORPUS[name]
    assert calls(run(chunks)) == expected
    if not chunks[-1]["choices"][0].get("message") and "run together" not in name:
        # The same without a finish reason, as this server ends all its streams.
        quiet = [{"choices": [{**c["choices"][0], "finish_reason": None}]} for c in chunks]
        if all(arguments for _, arguments in expected):
            usual = Endings(unmarked=2)
            assert calls(run(quiet, done=False, endings=usual)) == expected


def test_one_id_for_two_calls_is_told_apart() -> None:
    events = run(
        [
            chunk(piece('{"a":1}', "f", index=0, id="x")),
            chunk(piece('{"a":2}', "f", index=1, id="")),
            END,
        ]
    )
    assert calls(events) == [("f", {"a": 1}), ("f", {"a": 2})]


def test_text_comes_before_calls_and_reasoning_before_both() -> None:
    events = run(
        [
            chunk({"reasoning_content": "hm"}),
            chunk({"content": "I will"}),
            chunk(piece('{"a":1}', "f", index=0, id="x")),
            END,
        ]
    )
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert items[0]["chat"] == {"field": "reasoning_content"}
    assert items[0]["content"][0]["text"] == "hm"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("value", ["hm", {"text": "hm"}, {"content": "hm"}])
def test_reasoning_in_every_spelling(name: str, value: Any) -> None:
    events = run(
        [chunk({name: value}), chunk({"content": [{"type": "text", "text": "x"}]}, "stop")]
    )
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["hm"]
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert items[0]["chat"]["field"] == name
    assert items[1]["content"] == [{"type": "output_text", "text": "x"}]


def test_thinking_in_the_text_is_taken_apart() -> None:
    events = run([chunk({"content": "<think>\nso\n</think>\n\nHello"}, "stop")])
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert items[0]["content"][0]["text"] == "so"
    assert items[1]["content"][0]["text"] == "Hello"


def test_broken_arguments_are_left_for_the_gate() -> None:
    events = run([chunk(piece('{"a": 1, "b": "unfin', "f", index=0, id="x")), END])
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert items[0]["arguments"] == '{"a": 1, "b": "unfin'
    assert "repaired" not in items[0]


def test_repairs_are_labelled() -> None:
    events = run([chunk(piece('{"a": "1",}', "f", index=0, id="x")), END])
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert json.loads(items[0]["arguments"]) == {"a": 1}
    assert len(items[0]["repaired"]) == 2
    exact = run([chunk(piece('{"a": 1}', "f", index=0, id="x")), END])
    assert all("repaired" not in event.item for event in exact if isinstance(event, ItemDone))


def test_a_name_that_never_came_is_answered_not_lost() -> None:
    events = run([chunk(piece("{}", index=0, id="x")), END])
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert (items[0]["type"], items[0]["name"]) == ("function_call", "")


def test_length_means_that_the_answer_was_cut_not_that_the_window_is_full() -> None:
    with pytest.raises(ModelError, match="the server's own limit") as caught:
        run([chunk({"content": "x"}), chunk(piece('{"a"', "f", index=0)), chunk(finish="length")])
    assert caught.value.kind == "incomplete"
    parser = ChatParser(LOCAL, {}, limited=True)
    list(parser.feed(json.dumps(chunk({"content": "x"}, "length")).encode()))
    with pytest.raises(ModelError) as caught:
        list(parser.end())
    assert caught.value.kind == "incomplete"


def test_an_error_in_the_stream_is_one() -> None:
    with pytest.raises(ModelError, match="out of memory"):
        run([chunk({"content": "x"}), {"error": {"message": "out of memory"}}])


def test_a_stream_that_just_stops_is_broken() -> None:
    with pytest.raises(ModelError) as caught:
        run([chunk(piece('{"a"', "f", index=0))], done=False)
    assert caught.value.retryable


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["function", "name", "arguments", "id", "index", "tool_calls", "content"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(st.lists(values, max_size=5))
def test_nonsense_never_crashes(deltas: list[Any]) -> None:
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    events = run([*chunks, {"choices": deltas, "usage": deltas}, END])
    for event in events:
        if isinstance(event, ItemDone):
            json.dumps(event.item)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(["f", "g"]), st.dictionaries(st.text(), st.integers())),
        max_size=4,
    ),
    st.integers(1, 7),
    st.booleans(),
    st.booleans(),
)
def test_any_chunking_gives_the_same_calls(
    made: list[tuple[str, dict[str, int]]], size: int, with_ids: bool, with_index: bool
) -> None:
    chunks = []
    for number, (name, arguments) in enumerate(made):
        text = json.dumps(arguments)
        head: dict[str, Any] = {"index": number} if with_index or not with_ids else {}
        ids = {"id": f"c{number}"} if with_ids else {}
        chunks.append(chunk(piece(text[:size], name, **head, **ids)))
        # Without an index, only an id tells whose piece it is.
        rest = head or ids
        chunks += [
            chunk(piece(text[at : at + size], **rest)) for at in range(size, len(text), size)
        ]
    plain = Profile(repair=False)
    assert calls(run([*chunks, END], plain)) == made


def test_thinking_blocks_keep_their_signatures_and_go_back() -> None:
    """As LiteLLM streams the thinking of Anthropic's models on this wire."""

    def thinking(text: str, signature: str | None = None) -> dict[str, Any]:
        block = {"type": "thinking", "thinking": text, "signature": signature}
        return chunk({"reasoning_content": text, "thinking_blocks": [block]})

    hidden = {"type": "redacted_thinking", "data": "xyz"}
    events = run(
        [
            thinking("first, "),
            thinking("second"),
            thinking("", "SIGNED"),
            chunk({"thinking_blocks": [hidden]}),
            chunk(piece("{}", "f", index=0, id="c")),
            END,
        ]
    )
    items = [event.item for event in events if isinstance(event, ItemDone)]
    made = chat_messages(items, HOSTED)
    signed = {"type": "thinking", "thinking": "first, second", "signature": "SIGNED"}
    assert made[0]["thinking_blocks"] == [signed, hidden]
    assert made[0]["reasoning_content"] == "first, second"
