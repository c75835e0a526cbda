"""No pattern of a user can hang the process: it is refused, or ends soon."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.config.regex_cost import danger, may_match_nothing
from toolrest.errors import RespondToModel, ToolDefinitionError
from toolrest.gate.tool.freeform import CHECKED_CHARACTERS, compile_grammar
from toolrest.gate.tool.raw_schema import RawSchema
from toolrest.gate.tool.tool import Grammar

CATASTROPHES = ["(a+)+b", "(a|aa)+b", "(?:a|a)*b", "(a*)*b", "(.*a){20}b", "(?:a?){50}a{50}b"]
CATASTROPHES += ["(?=(a+)+b)a", "a*a*a*a*b", ".*a.*a.*a.*b", "(?:.*,)*b", r"(?:\w|a)+b"]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_catastrophic_patterns_are_refused(pattern: str) -> None:
    assert danger(pattern, longest=4096, budget=8192, whole=True)
    with pytest.raises(ToolDefinitionError, match="bad pattern"):
        compile_grammar(Grammar("regex", pattern))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_a_pattern_in_the_schema_of_a_server_ends_soon(pattern: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}

    def check() -> None:
        with pytest.raises(RespondToModel):
            RawSchema(schema, "tool").decode({"x": "a" * CHECKED_CHARACTERS + "!"})

    assert_effort(check, below=250)


ATOMS = [
    "a",
    "b",
    "[ab]",
    "[^a]",
    ".",
    r"\w",
    r"\W",
    r"\d",
    r"\x61",
    "é",
    r"\{",
    "[]a]",
    "{",
    r"\b",
]
COUNTS = ["", "", "?", "*", "+", "*?", "++", "{2}", "{,3}", "{2,}", "{0,40}", "{9}"]
GROUPS = ["(%s)", "(?:%s)", "(?P<n>%s)", "(?i:%s)", "(?>%s)", "(?=%s)", "(?!%s)", "(?#)%s", "%s|a"]
simple = st.tuples(st.sampled_from(ATOMS), st.sampled_from(COUNTS)).map("".join)
patterns = st.recursive(
    st.lists(simple, min_size=1, max_size=4).map("".join),
    lambda inner: st.tuples(st.sampled_from(GROUPS), inner, st.sampled_from(COUNTS), inner).map(
        lambda found: (
            (found[0] % found[1] if "|" not in found[0] else f"(?:{found[1]}|a)")
            + found[2]
            + found[3]
        )
    ),
    max_leaves=4,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(patterns, st.sampled_from(["", "b", "c", "$", r"\b"]))
def test_what_is_accepted_ends_soon(pattern: str, end: str) -> None:
    try:
        compiled = re.compile(pattern + end)
    except re.error:
        return
    assert may_match_nothing(pattern + end) or not compiled.search("")
    if danger(pattern + end, longest=2000, budget=4000):
        return
    for text in ("a" * 2000, "ab" * 1000, "aab" * 600, "é" * 2000, "a!" * 1000):
        assert_effort(lambda text=text: compiled.sub("", text), below=200)  # type: ignore[misc]
