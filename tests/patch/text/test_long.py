"""Texts of very many lines: the same places and the same result as line by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.errors import PatchError
from toolrest.patch.forms import unified
from toolrest.patch.forms.unified_plan import patched
from toolrest.patch.text import diff, long, match
from toolrest.patch.text.diff import unified_diff
from toolrest.patch.text.long import LongText
from toolrest.patch.text.match import Finder
from toolrest.patch.text.rebuild import TextLines, rewrite

ENDINGS = st.sampled_from(["\n", "\n", "\r\n", "\r"])
texts = st.lists(st.tuples(st.sampled_from(["a", "b", "", "ab"]), ENDINGS), max_size=12).flatmap(
    lambda lines: st.sampled_from(["", "a", "b"]).map(
        lambda last: "".join(line + ending for line, ending in lines) + last
    )
)
plain = texts.map(lambda text: text.replace("\r\n", "\n").replace("\r", "\n"))
wanted = st.lists(st.sampled_from(["a", "b", "", "ab"]), min_size=1, max_size=3)
with_patches = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that every text has borders of them in every place."""
    monkeypatch.setattr(long, "_BLOCK", 2)
    monkeypatch.setattr(diff, "_BLOCK", 4)


@pytest.mark.usefixtures("small_blocks")
@with_patches
@given(texts, wanted, st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_the_same_places_as_in_a_list(
    text: str, lines: list[str], start: int, low: int, eof: bool
) -> None:
    listed, one = TextLines(text), LongText(text)
    assert list(one) == listed.texts
    assert [one[number] for number in range(len(one))] == listed.texts
    finder = Finder(listed.texts, [line.strip() for line in lines])
    assert one.find(lines, start, eof=eof) == finder.find(lines, start, eof=eof)
    assert one.nearest(lines, start, low) == finder.nearest(lines, start, low)
    assert one.places(lines, low) == finder.places(lines, low)
    for first in range(len(one) + 1):
        for stop in range(first, len(one) + 1):
            assert one.span(first, stop) == listed.span(first, stop)


hunks = st.lists(
    st.lists(st.tuples(st.sampled_from(" -+"), st.sampled_from(["a", "b", "", "ab"])), min_size=1),
    min_size=1,
    max_size=3,
)


@pytest.mark.usefixtures("small_blocks")
@with_patches
@given(texts, hunks, st.booleans())
def test_a_patch_gives_the_same(text: str, parts: list[list[tuple[str, str]]], eof: bool) -> None:
    body = "".join("@@\n" + "".join(f"{mark}{line}\n" for mark, line in part) for part in parts)
    end = "*** End of File\n" if eof else ""
    (operation,) = grammar.parse(
        f"*** Begin Patch\n*** Update File: f\n{body}{end}*** End Patch"
    ).operations
    assert isinstance(operation, grammar.UpdateFile)
    assert _result(text, operation.chunks, 0) == _result(text, operation.chunks, 200_000)


def _result(text: str, chunks: list[grammar.Chunk], most: int) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match, "MOST_LINES", most)
        try:
            return rewrite(text, chunks, "f")
        except PatchError as error:
            return error.message


@pytest.mark.usefixtures("small_blocks")
@with_patches
@given(plain, plain, st.integers(1, 3))
def test_a_diff_of_the_middle_applies(old: str, new: str, context: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "_LARGE", 0)
        middle = unified_diff(old, new, context)
    assert bool(middle) == (old != new)
    if not middle:
        return
    (parsed,) = unified.parse(f"--- a/f\n+++ b/f\n{middle}")
    assert patched(old.encode(), parsed.hunks, "f").decode() == new
    for hunk in parsed.hunks:
        # A hunk with less context would only fit the beginning or the end of a file.
        marks, start = "".join(hunk.marks), (hunk.start or 0) - bool(hunk.old)
        assert len(marks) - len(marks.lstrip(" ")) >= min(context, start)
        behind = len(TextLines(old).texts) - start - len(hunk.old)
        assert len(marks) - len(marks.rstrip(" ")) >= (context if behind else 0)


@pytest.mark.usefixtures("small_blocks")
@with_patches
@given(plain, st.integers(0, 20), st.integers(0, 6), plain)
def test_one_change_is_shown_as_in_a_small_text(text: str, at: int, size: int, come: str) -> None:
    """Where nothing can slide, hunks, numbers and context are the same."""
    text = "".join(f"{line}{number}\n" for number, line in enumerate(text.split("\n")))
    new = text[:at] + "<" + come + ">" + text[at + size :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "_LARGE", 0)
        middle = unified_diff(text, new)
    assert middle == unified_diff(text, new)


def test_too_many_lines_are_counted() -> None:
    old, new = "a\n" * 250_000 + "end\n", "b\n" * 250_000 + "end\n"
    assert unified_diff("first\n" + old, "first\n" + new) == (
        "@@ -1,250002 +1,250002 @@\n\\ Too many lines to list: 250,002 before, 250,002 after\n"
    )
    assert (
        unified_diff("", new)
        == "@@ -0,0 +1,250001 @@\n\\ Too many lines to list: 0 before, 250,001 after\n"
    )


def test_a_diff_with_line_numbers_in_a_long_file(tmp_path: Path) -> None:
    lines = ["a"] * 250_000
    changed = list(lines)
    changed[240_000] = "b"
    old, new = ("\n".join(part) + "\n" for part in (lines, changed))
    text = f"--- a/f\n+++ b/f\n{unified_diff(old, new)}"
    assert "@@ -239998,7 +239998,7 @@" in text
    (parsed,) = unified.parse(text)
    assert patched(old.encode(), parsed.hunks, "f").decode() == new
