from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolrest.policy.terminal_safe import display_safe

NAMES = {"LF": "\n", "CR": "\r", "TAB": "\t", "ESC": "\x1b", "NUL": "\x00", "SP": " "}
any_text = st.text(
    st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from(" \n\t\x1b⟨⟩\u202e\u200b\u2800\ufe0f"),
    ),
    max_size=60,
)


def _read_back(shown: str) -> str:
    """What the reader of the shown text knows about the original."""

    def original(found: re.Match[str]) -> str:
        name, count = found[1], int(found[2] or 1)
        return (NAMES[name] if name in NAMES else chr(int(name[2:], 16))) * count

    return re.sub("⟨([A-Z]+|U\\+[0-9A-F]{4,6})(?:×([0-9]+))?⟩", original, shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -l | wc", "ls -l | wc"),
        ("grüße 你好 😀 e\u0301", "grüße 你好 😀 e\u0301"),
        ("a\nb\tc", "a⟨LF⟩b⟨TAB⟩c"),
        ("\x1b[2K\rrm", "⟨ESC⟩[2K⟨CR⟩rm"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("a\u202eb\u2066c", "a⟨U+202E⟩b⟨U+2066⟩c"),
        ("a\u200b\u200b\u200bb", "a⟨U+200B×3⟩b"),
        ("a\u2028\u2029", "a⟨U+2028⟩⟨U+2029⟩"),
        ("\ue000\U000f0000\U000e0041", "⟨U+E000⟩⟨U+F0000⟩⟨U+E0041⟩"),
        ("a\u00a0\u3000b", "a⟨U+00A0⟩⟨U+3000⟩b"),
        ("\u3164\u115f\u2800\ufe0f", "⟨U+3164⟩⟨U+115F⟩⟨U+2800⟩⟨U+FE0F⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("a" + " " * 8 + "b", "a" + " " * 8 + "b"),
        ("a" + " " * 200 + "b", "a⟨SP×200⟩b"),
        ("⟨ESC⟩", "⟨U+27E8⟩ESC⟩"),
        ("", ""),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert display_safe(text) == shown


def test_newlines_may_be_kept_but_not_to_push_text_off_the_screen() -> None:
    assert display_safe("a\nb\n\nc", keep_newlines=True) == "a\nb\n\nc"
    assert display_safe("a" + "\n" * 50 + "b", keep_newlines=True) == "a⟨LF×50⟩\nb"


@given(any_text)
@example(" " * 9 + "⟨")
def test_nothing_is_obeyed_hidden_or_lost(text: str) -> None:
    shown = display_safe(text)
    assert shown.isprintable()
    assert all(unicodedata.category(char)[0] not in "C" for char in shown)
    assert " " * 9 not in shown
    assert _read_back(shown) == text


@given(any_text, any_text)
def test_two_texts_never_look_the_same(one: str, two: str) -> None:
    assert (display_safe(one) == display_safe(two)) == (one == two)
    kept = display_safe(one, keep_newlines=True), display_safe(two, keep_newlines=True)
    assert (kept[0] == kept[1]) == (one == two)
