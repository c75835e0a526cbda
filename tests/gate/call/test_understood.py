"""A call's short name depends on what its arguments say, not on how they are written."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolrest import tool
from toolrest.gate.call.understand import Route, fingerprint_of
from toolrest.policy.fingerprint import fingerprint


@tool(mutating=False)
async def noop() -> str:
    """Nothing."""
    return ""


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
BLANK = st.text(" \n\t", max_size=2)


@given(VALUES, st.none() | st.integers(0, 2), BLANK, BLANK)
def test_spaces_do_not_count(value: Any, indent: int | None, before: str, after: str) -> None:
    text = before + json.dumps(value, indent=indent) + after
    assert fingerprint_of(Route(noop, text)) == fingerprint("noop", json.loads(text))


@given(st.sampled_from(['{"a":1}', "{", "{}", '{"a"', "[1]", "x"]), st.text(max_size=4))
def test_what_is_not_json_is_its_own_text(start: str, more: str) -> None:
    text = start + more
    try:
        expected = json.loads(text)
    except ValueError:
        expected = text
    assert fingerprint_of(Route(noop, text)) == fingerprint("noop", expected)
