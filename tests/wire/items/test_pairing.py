from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest.items import JSONObject
from toolrest.wire.items.history_bytes import EncodedHistory
from toolrest.wire.items.pairing import (
    call_id_of,
    is_call,
    is_output,
    paired,
    printable_id,
    word_id,
)

USER: JSONObject = {"type": "message", "role": "user", "content": []}
SAID: JSONObject = {"type": "message", "role": "assistant", "content": []}
THOUGHT: JSONObject = {"type": "reasoning", "summary": []}
ids = st.sampled_from(["a", "b", "c", "", "x y", "é", "l" * 80])


def call(call_id: str, kind: str = "function_call") -> JSONObject:
    return {"type": kind, "call_id": call_id, "name": "n", "arguments": "{}"}


def output(call_id: str, text: str = "out", kind: str = "function_call_output") -> JSONObject:
    return {"type": kind, "call_id": call_id, "output": text}


items = st.one_of(
    st.builds(dict, st.just(USER)),
    st.builds(dict, st.just(SAID)),
    st.builds(dict, st.just(THOUGHT)),
    st.builds(
        call, ids, st.sampled_from(["function_call", "custom_tool_call", "local_shell_call"])
    ),
    st.builds(call, ids, st.just("view_image_call")),
    st.builds(
        output,
        ids,
        st.text(max_size=3),
        st.sampled_from(["function_call_output", "custom_tool_call_output"]),
    ),
    st.builds(lambda: {"type": "web_search_call", "status": "completed"}),
)
histories = st.lists(items, max_size=24)


def assert_paired(made: list[JSONObject]) -> None:
    """Each group is followed at once by one output per call, in call order, and by no other."""
    owed: list[str] = []
    seen: set[str] = set()
    for item in made:
        if is_output(item):
            assert owed, item
            assert call_id_of(item) == owed.pop(0)
        elif is_call(item):
            call_id = item["call_id"]
            assert call_id
            assert len(call_id) <= 64
            assert call_id not in seen
            seen.add(call_id)
            owed.append(call_id)
        elif item["type"] == "message" and item["role"] != "assistant":
            assert not owed
    assert not owed


@given(histories)
def test_any_history_becomes_a_valid_one(history: list[JSONObject]) -> None:
    before = copy.deepcopy(history)
    made = paired(history)
    assert_paired(made)
    assert history == before
    assert paired(made) == made
    kept = [item for item in made if not is_output(item) and not is_call(item)]
    assert kept == [item for item in history if not is_output(item) and not is_call(item)]
    assert sum(map(is_call, made)) == sum(map(is_call, history))


@given(histories)
def test_an_output_that_has_its_call_is_never_lost(history: list[JSONObject]) -> None:
    """One call per id: then its first later output must be there, whatever is between."""
    seen: set[str] = set()
    single = []
    for item in history:
        if is_call(item):
            if item["call_id"] in seen:
                continue
            seen.add(item["call_id"])
        single.append(item)
    expected: dict[str, str] = {}
    called: set[str] = set()
    for item in single:
        if is_call(item):
            called.add(item["call_id"])
        elif is_output(item) and item["call_id"] in called:
            expected.setdefault(item["call_id"], item["output"])
    made = paired(single)
    got = {item["call_id"]: item for item in made if is_output(item)}
    for call_id, text in expected.items():
        answer = got[printable_id(call_id)]
        told = answer["output"] if "output" in answer else answer["metadata"]["error"]
        assert told == text


def test_a_missing_output_is_aborted_at_its_place() -> None:
    made = paired([call("a"), USER, SAID])
    assert made == [call("a"), output("a", "aborted"), USER, SAID]


def test_orphans_and_second_outputs_are_dropped() -> None:
    made = paired([output("x"), call("a"), output("a", "1"), output("a", "2"), USER])
    assert made == [call("a"), output("a", "1"), USER]


def test_a_late_output_comes_to_its_call() -> None:
    made = paired([call("a"), USER, SAID, output("a", "late")])
    assert made == [call("a"), output("a", "late"), USER, SAID]


def test_siblings_are_answered_in_call_order() -> None:
    made = paired([call("a"), THOUGHT, call("b"), output("b", "2"), output("a", "1")])
    assert made == [call("a"), THOUGHT, call("b"), output("a", "1"), output("b", "2")]


def test_an_id_that_is_used_again_gets_its_own_name() -> None:
    made = paired([call("a"), output("a", "1"), call("a"), output("a", "2")])
    assert [item["call_id"] for item in made] == ["a", "a", "a__2", "a__2"]
    assert [item["output"] for item in made if is_output(item)] == ["1", "2"]


def test_an_output_of_the_wrong_kind_is_made_to_fit() -> None:
    made = paired([call("a", "custom_tool_call"), output("a")])
    assert made[1] == {"type": "custom_tool_call_output", "call_id": "a", "output": "out"}


def test_the_shells_id_may_be_the_items() -> None:
    made = paired([{"type": "local_shell_call", "id": "lsh", "action": {}}, output("lsh", "done")])
    assert made[0]["call_id"] == "lsh"
    assert made[1]["output"] == "done"


def test_a_search_that_the_server_did_needs_no_answer() -> None:
    done = {"type": "web_search_call", "status": "completed", "call_id": "ws"}
    assert paired([done, USER]) == [done, USER]
    waiting = {"type": "web_search_call", "status": "in_progress", "call_id": "ws", "query": "q"}
    assert paired([waiting])[1]["error"] == "aborted"


@given(st.text(max_size=100))
def test_ids_become_what_the_apis_allow(text: str) -> None:
    assert 0 < len(word_id(text)) <= 64
    assert word_id(text).replace("_", "").replace("-", "").isalnum() or set(word_id(text)) <= {
        "_",
        "-",
    }
    assert word_id(text).isascii()
    assert printable_id(text).isprintable()
    assert 0 < len(printable_id(text)) <= 64


# Rendering: growing a history step by step gives what rendering it at once does


def as_they_are(stretch: Any) -> list[JSONObject]:
    return list(stretch)


def whole(history: EncodedHistory, listed: list[JSONObject]) -> list[JSONObject]:
    made = history.render(listed)
    return [*json.loads(b"[%s]" % made.settled), *made.rest]


@pytest.mark.slow
@given(histories, st.lists(st.integers(0, 24), max_size=5), st.booleans())
@settings(max_examples=300)
def test_growing_is_the_same_as_at_once(
    history: list[JSONObject], stops: list[int], forgets: bool
) -> None:
    history = [dict(item) for item in history]
    growing = EncodedHistory(as_they_are, forgets=forgets)
    for stop in sorted(stops):
        at_once = whole(EncodedHistory(as_they_are, forgets=forgets), history[:stop])
        assert whole(growing, history[:stop]) == at_once
    made = whole(growing, history)
    assert made == whole(EncodedHistory(as_they_are, forgets=forgets), history)
    assert_paired(made)


@given(histories, histories)
def test_another_history_starts_anew(one: list[JSONObject], two: list[JSONObject]) -> None:
    reused = EncodedHistory(as_they_are)
    whole(reused, one)
    assert whole(reused, two) == paired(two)


def test_only_the_end_is_rendered_again() -> None:
    seen: list[int] = []

    def count(stretch: Any) -> list[JSONObject]:
        seen.append(len(stretch))
        return list(stretch)

    history = EncodedHistory(count)
    listed: list[JSONObject] = [dict(USER)]
    for turn in range(200):
        history.render(listed)
        listed += [call(f"c{turn}"), output(f"c{turn}")]
    seen.clear()
    history.render(listed)
    assert sum(seen) <= 8


def test_reasoning_is_forgotten_when_the_user_speaks() -> None:
    history = EncodedHistory(as_they_are, forgets=True)
    listed = [dict(USER), dict(THOUGHT), call("a"), output("a"), dict(THOUGHT), call("b")]
    assert sum(item["type"] == "reasoning" for item in whole(history, listed)) == 2
    listed += [output("b"), dict(SAID), dict(USER)]
    assert not any(item["type"] == "reasoning" for item in whole(history, listed))
