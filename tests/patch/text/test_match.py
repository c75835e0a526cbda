"""Finding lines: the fast way against the slow one, and against those who would make it slow."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.patch.codex_grammar import WHITESPACE, parse
from toolrest.patch.errors import MatchError
from toolrest.patch.text.match import PASSES, Finder
from toolrest.patch.text.rebuild import rewrite

LINES = ["a", "a ", " a", "\ta", "b", "", " ", "a\x1c", "“b”", '"b"', "a–b", "a-b", "\u3000a"]
lines = st.lists(st.sampled_from(LINES), max_size=9)


def naive(texts: list[str], wanted: list[str], first: int) -> dict[int, list[int]]:
    """Every place from `first` on, by the pass that finds it."""
    places: dict[int, list[int]] = {}
    for level, (_, key) in enumerate(PASSES):
        same = key or str
        asked = [same(line) for line in wanted]
        places[level] = [
            at
            for at in range(first, len(texts) - len(wanted) + 1)
            if [same(line) for line in texts[at : at + len(wanted)]] == asked
        ]
    return places


@given(lines, lines, st.integers(0, 9), st.booleans())
def test_the_first_place(texts: list[str], wanted: list[str], start: int, eof: bool) -> None:
    found = Finder(texts, wanted).find(wanted, start, eof=eof)
    if not wanted:
        assert found == start
        return
    first = max(len(texts) - len(wanted), start) if eof else start
    hits = next((at for at in naive(texts, wanted, first).values() if at), [None])
    assert found == hits[0]


@given(lines, lines.filter(bool), st.integers(0, 9), st.integers(0, 9))
def test_the_nearest_place(texts: list[str], wanted: list[str], expected: int, low: int) -> None:
    found = Finder(texts, wanted).nearest(wanted, expected, low)
    hits = next((at for at in naive(texts, wanted, low).values() if at), [])
    if not hits:
        assert found is None
        return
    top = max(len(texts) - len(wanted), low)
    meant = min(max(expected, low), top)
    assert found in hits
    assert abs(found - meant) == min(abs(at - meant) for at in hits)


def test_white_space_is_unicodes() -> None:
    assert len(WHITESPACE) == 25
    assert all(c.isspace() for c in WHITESPACE)
    assert not set("\x1c\x1d\x1e\x1f\u200b\ufeff\u180e") & set(WHITESPACE)


def patch(body: str) -> str:
    return f"*** Begin Patch\n*** Update File: f\n{body}\n*** End Patch"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "body"),
    [
        # One long pattern that almost matches everywhere.
        ("a\n" * 50_000, "@@\n" + "-a\n" * 10_000 + "-b\n+c"),
        ("a\nb\n" * 25_000, "@@\n" + "-a\n-b\n" * 5_000 + "-a\n-a\n+c"),
        # Many chunks that only the second comparison finds.
        ("a \n" * 20_000, "@@\n-a\n+b\n" * 20_000),
        # Many chunks that only the last comparison finds, far away.
        ("x\n" * 40_000 + "a–b\n" * 2_000, "@@\n-a-b\n+b\n" * 2_000),
        # Many contexts.
        ("def f():\n  pass\n" * 10_000, "@@ def f():\n-  pass\n+  return\n" * 10_000),
        # All insertions at the end.
        ("x\n" * 1_000, "@@\n+a\n" * 50_000),
    ],
    ids=range(6),
)
def test_hostile_files_and_patches_take_bounded_time(text: str, body: str) -> None:
    (update,) = parse(patch(body)).operations

    def attempt() -> None:
        with suppress(MatchError):
            rewrite(text, update.chunks, "f")  # type: ignore[union-attr]

    assert_effort(attempt, below=700)
