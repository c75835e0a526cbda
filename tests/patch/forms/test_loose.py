"""Edits whose text is there but for white space around its lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.patch.errors import EditError
from toolrest.patch.files.paths import resolve
from toolrest.patch.forms.string_edits import Edit, edited

TARGET = resolve("/w", "f")
TEXT = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"


def once(text: str, old: str, new: str) -> str:
    notes: list[str] = []
    result, count = edited(text, [Edit(old, new)], TARGET, notes)
    assert count == 1
    assert len(notes) == 1
    assert "white space" in notes[0]
    return result


def test_new_lines_are_indented_as_the_old_ones_really_are() -> None:
    old = "def f(self):\n    return 1"
    new = "def f(self):\n    if x:\n        return 3\n    return 1"
    assert once(TEXT, old, new) == TEXT.replace(
        "        return 1", "        if x:\n            return 3\n        return 1"
    )


def test_too_much_and_other_indentation() -> None:
    assert once("\tif x:\n\t\ty()\n", "        if x:\n", "        if z:\n") == "\tif z:\n\t\ty()\n"
    assert once("a  \nb\n", "a\nb", "c\n\nd") == "c\n\nd\n"


def test_line_endings_and_a_missing_last_one_stay() -> None:
    assert once("  a\r\n  b\r\nc\r\n", "a\nb\n", "x\ny\n") == "  x\r\n  y\r\nc\r\n"
    assert once("  a\n  b", "a\nb", "x") == "  x"


def test_an_exact_text_is_taken_first() -> None:
    notes: list[str] = []
    assert edited("  a\nxa\n", [Edit("xa", "b")], TARGET, notes) == ("  a\nb\n", 1)
    assert not notes


def test_several_places_are_refused_with_the_count() -> None:
    with pytest.raises(EditError, match="not unique: it occurs 2 times, at lines 1, 3"):
        edited("  a b\nx\n\ta b\n", [Edit("a b \n", "c\n")], TARGET)


@pytest.mark.parametrize("old", ["\n", "  \n", "absent", "return", "def f(self):\n    return 2"])
def test_what_is_not_there_is_not_found(old: str) -> None:
    with pytest.raises(EditError):
        edited(TEXT, [Edit(f"@{old}" if old == "return" else old, "x")], TARGET)


def test_replace_all_means_exactly_this() -> None:
    with pytest.raises(EditError, match="target text not found"):
        edited("  a\n  b\n", [Edit("a\nb", "x", replace_all=True)], TARGET)


@given(
    st.lists(st.sampled_from(["a", "b", "  c", "\td", "", "e f"]), min_size=1, max_size=8),
    st.data(),
)
def test_lines_around_the_place_stay_as_they_are(lines: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(lines) - 1))
    stop = data.draw(st.integers(first + 1, len(lines)))
    old = "".join(f"   {line.strip()} \n" for line in lines[first:stop])
    text = "".join(f"{line}\n" for line in lines)
    try:
        result, _ = edited(text, [Edit(old, "NEW\n")], TARGET)
    except EditError:
        return
    before, after = lines[:first], lines[stop:]
    assert result.split("\n")[: len(before)] == before
    assert result.split("\n")[-len(after) - 1 : -1] == after
    assert result.count("NEW") == 1
