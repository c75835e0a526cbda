"""Whatever a hook prints: it means something, or it is an error; it is never a yes by accident."""

from __future__ import annotations

import json
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from toolrest.gate.hooks.program import BadReply, HookEvent, read_reply

EVENTS = st.sampled_from(get_args(HookEvent))
NAMES = st.sampled_from(
    [
        "hookSpecificOutput",
        "hookEventName",
        "permissionDecision",
        "permissionDecisionReason",
        "decision",
        "behavior",
        "reason",
        "continue",
        "updatedInput",
        "updatedToolOutput",
        "additionalContext",
        "systemMessage",
        "interrupt",
    ]
)
WORDS = st.sampled_from(["allow", "deny", "ask", "approve", "block", "maybe", "PreToolUse", ""])
LEAVES = st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.text(max_size=5))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)


def words_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {word for item in value.values() for word in words_in(item)}
    if isinstance(value, list):
        return {word for item in value for word in words_in(item)}
    return {value} if isinstance(value, str) else set()


@given(EVENTS, st.text())
def test_any_text_is_read_or_refused(event: HookEvent, text: str) -> None:
    try:
        reply = read_reply(event, text)
    except BadReply:
        return
    assert reply.choice is None
    assert reply.updated_input is None


@given(EVENTS, st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_yes_was_said_and_nothing_stricter(event: HookEvent, value: dict[str, Any]) -> None:
    try:
        reply = read_reply(event, json.dumps(value))
    except BadReply:
        return
    if reply.choice == "allow":
        assert words_in(value) & {"allow", "approve"}
        inner = value.get("hookSpecificOutput") or {}
        places = [value, inner, value.get("decision"), inner.get("decision")]
        said = [
            p.get(n)
            for p in places
            if isinstance(p, dict)
            for n in ("permissionDecision", "decision", "behavior")
        ]
        assert not {word for word in said if isinstance(word, str)} & {"deny", "block", "ask"}
    if value.get("continue") is False:
        assert reply.choice == "deny" or reply.ends_turn


@given(st.lists(st.sampled_from(["allow", "deny", "ask"]), min_size=1, max_size=3))
def test_the_strictest_of_several_answers_counts(choices: list[str]) -> None:
    names = ("permissionDecision", "behavior", "decision")
    reply = read_reply("PreToolUse", json.dumps(dict(zip(names, choices, strict=False))))
    strictest = next(answer for answer in ("deny", "ask", "allow") if answer in choices)
    assert reply.choice == strictest
