"""Histories, summaries and rollouts as data: whatever comes, they stay whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest.agent.history.compaction import PREFIX, USER_TOKENS, condensed, without_oldest
from toolrest.agent.history.history import History, is_user_turn, message, message_text, output_item
from toolrest.agent.history.rollout import read_rollout
from toolrest.agent.history.tokens import item_tokens, text_tokens, usage_from, usage_json
from toolrest.errors import ConfigError
from toolrest.wire.model import Usage


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "name": "x", "arguments": "{}", "call_id": call_id}


def test_open_calls_are_those_without_an_output() -> None:
    history = History([call("a"), call("b"), output_item(call("a"), "done")])
    assert [item["call_id"] for item in history.open_calls()] == ["b"]
    history.append(output_item(call("b"), "done"))
    assert history.open_calls() == []


def test_a_servers_own_search_needs_no_output() -> None:
    assert History([{"type": "web_search_call", "status": "completed"}]).open_calls() == []


@pytest.mark.parametrize(
    "call_item",
    [
        call("a"),
        {"type": "custom_tool_call", "name": "x", "input": "", "call_id": "a"},
        {"type": "local_shell_call", "id": "a", "action": {}},
        {"type": "view_image_call", "image_path": "x", "call_id": "a"},
        {"type": "web_search_call", "query": "x", "call_id": "a"},
    ],
)
def test_every_kind_of_call_can_be_answered_without_a_tool(call_item: dict[str, Any]) -> None:
    history = History([call_item])
    history.append(output_item(call_item, "interrupted"))
    assert history.open_calls() == []
    assert "interrupted" in json.dumps(history.items[-1])


def test_ids_are_never_used_twice() -> None:
    history = History()
    given = []
    for wanted in ("call_0", "call_0", "", "call_0_2", "call_0", ""):
        given.append(history.unused_id(wanted))
        history.append(call(given[-1]))
    assert len(set(given)) == len(given)
    assert given[0] == "call_0"


def test_what_toolrest_says_as_the_user_is_no_turn() -> None:
    assert is_user_turn(message("user", "hello"))
    for text in ("<environment_context>\n", "# AGENTS.md instructions for /x", "<TURN_ABORTED>"):
        assert not is_user_turn(message("user", text))
    assert not is_user_turn(message("assistant", "hello"))


def test_tokens_are_four_bytes() -> None:
    assert [text_tokens(text) for text in ("", "a", "abcd", "abcde", "é" * 4)] == [0, 1, 1, 2, 2]
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 100_000}
    item = message("user", picture)
    assert item_tokens(item, len(json.dumps(item))) < 2000
    hidden = {"type": "reasoning", "encrypted_content": "x" * 4000}
    assert item_tokens(hidden, 4000) == (4000 * 3 // 4 - 650 + 3) // 4


def test_usage_survives_the_journal() -> None:
    usage = Usage(1, 2, 3, 4, 5, 6)
    assert usage_from(json.loads(json.dumps(usage_json(usage)))) == usage
    assert usage_from({"input_tokens": "many", "output_tokens": -1}) == Usage()
    assert usage_from(None) == Usage()


def test_a_summary_keeps_what_people_said_last() -> None:
    opening = [message("developer", "rules")]
    items = [
        message("user", "<environment_context>"),
        message("user", "old " + "x" * 4 * USER_TOKENS),
        message("assistant", "answer"),
        message("user", f"{PREFIX}\nan earlier summary"),
        message("user", "new"),
    ]
    kept = condensed(opening, items, "the summary")
    assert kept[0] == opening[0]
    assert message_text(kept[1]).startswith("old xxx")
    assert "tokens truncated" in message_text(kept[1])
    assert [message_text(item) for item in kept[2:]] == ["new", f"{PREFIX}\nthe summary"]
    assert text_tokens(message_text(kept[1])) <= USER_TOKENS + 20


def test_in_a_small_window_the_users_messages_leave_room_failed_before() -> None:
    items = [message("user", f"message {number} " + "x" * 200) for number in range(300)]
    kept = condensed([], items, "the summary", 4_000)
    sizes = [item_tokens(item, len(json.dumps(item))) for item in kept]
    assert 1_000 < sum(sizes) < 3_000
    assert message_text(kept[-2]).startswith("message 299 ")
    assert condensed([], items, "s" * 40_000, 4_000)[:-1] == []


def test_dropping_the_oldest_takes_its_partner_along() -> None:
    items = [call("a"), message("user", "x"), output_item(call("a"), "1"), call("b")]
    assert without_oldest(items) == [items[1], items[3]]
    assert without_oldest([]) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["session_meta", "response_item", "compacted", "event_msg", "turn_context", "other", ""]
)
PAYLOADS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "id": JSON,
        "type": st.sampled_from(["message", "function_call", "token_count", "thread_rolled_back"]),
        "role": st.sampled_from(["user", "assistant", "system"]) | JSON,
        "content": JSON,
        "num_turns": JSON,
        "info": JSON,
        "message": JSON,
        "replacement_history": JSON,
    },
)
LINES = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda k, p: json.dumps({"type": k, "payload": p}).encode(), KINDS | JSON, PAYLOADS),
)


@pytest.mark.slow
@given(st.lists(LINES, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_a_session_or_an_error(tmp_path: Path, rows: list[bytes]) -> None:
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(b"\n".join(rows))
    try:
        rollout = read_rollout(str(path))
    except ConfigError:
        return
    assert all(isinstance(item, dict) for item in rollout.items)
    history = History(rollout.items)
    for item in history.open_calls():
        history.append(output_item(item, "interrupted"))
    assert history.open_calls() == []
