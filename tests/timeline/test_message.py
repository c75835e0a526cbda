"""A message that streams in: what was printed stays, and the end is as if drawn at once."""

from __future__ import annotations

import re
from itertools import pairwise
from time import thread_time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest.timeline.message import MessageRows
from toolrest.timeline.wrap import Line, drawn_width, plain_text

BLOCKS = (
    "# A heading with *emphasis*",
    "A paragraph with **bold words**, `code`, a [link](https://a.example), more\nin two lines",
    "漢字かな交じり文、これはとても長い文章です。 emoji 🎉👩‍💻 and é",
    "- one\n- two\n  - nested and long enough that it is continued in a row below\n- three",
    "- loose\n\n- list\n\n  with a paragraph",
    "1. [x] done\n2. [ ] not done",
    "> quoted\n> twice\n\n> apart",
    "```python\ndef f(x):\n\n    '''doc\n    more'''\n    return x  # longer than the row\n```",
    "~~~~\n```\n~~~\n\n~~~~",
    "    indented\n\n    code",
    "| a | b |\n|---|--:|\n| 1 | a cell that is far too long for this narrow table |\n| 漢字 | 2 |",
    "Title\n---",
    "***",
    "| no table\ntext",
    "```\nopen",
)  # fmt: skip


def _text(rows: list[Line]) -> list[str]:
    return [plain_text(row) for row in rows]


def _whole(text: str, width: int) -> list[str]:
    return _text(MessageRows(width).advance(text, done=True))


def _streamed(text: str, size: int, width: int, room: int | None = None) -> list[str]:
    rows, found = MessageRows(width), []
    for end in range(size, len(text) + size, size):
        found += rows.advance(text[:end], room=room)
        assert room is None or len(rows.live) <= max(room, 4)
    return _text(found + rows.advance(text, done=True, room=room))


@pytest.mark.parametrize("size", [1, 7, 50])
@given(
    parts=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4),
    gap=st.sampled_from(["\n\n", "\n"]),
    width=st.sampled_from([24, 60]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pieces_make_the_same_rows_as_the_whole(
    size: int, parts: list[str], gap: str, width: int
) -> None:
    text = gap.join(parts)
    assert _streamed(text, size, width) == _whole(text, width)


@given(text=st.text("ab *_`~[]()|-#>\n1.\t漢", max_size=120), size=st.sampled_from([1, 7]))
@settings(max_examples=150, deadline=None)
def test_any_text_streams_as_it_is_drawn(text: str, size: int) -> None:
    assert _streamed(text, size, 30) == _whole(text, 30)


@given(parts=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3), room=st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_a_screen_that_is_too_low_loses_no_letter(parts: list[str], room: int) -> None:
    text = "\n\n".join(parts)

    def letters(rows: list[str]) -> str:
        return "".join(sorted(char for row in rows for char in row if char.isalnum()))

    assert letters(_streamed(text, 1, 40, room)) == letters(_whole(text, 40))


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_no_word_is_lost(text: str) -> None:
    shown = "".join(row.strip(" ●│") for row in _whole(text, 200))
    assert all(word in shown for word in re.findall(r"[A-Za-z0-9]+", text) if text.isascii())


def test_no_row_is_wider_than_the_terminal() -> None:
    for width in (24, 50, 80):
        assert max(map(drawn_width, _whole("\n\n".join(BLOCKS), width))) < width


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["\x1ba", "漢", "👩\u200d", "é"])
def test_one_long_word_does_not_take_long(piece: str) -> None:
    """Failed before: the time grew with the square of the length."""
    began = thread_time()
    assert _whole(piece * (50_000 // len(piece)), 80)
    assert thread_time() - began < 2


def test_what_stands_behind_a_link_with_a_long_title_is_shown() -> None:
    """Failed before: as many letters as the link lost when it closed were left out."""
    text = f'See [x](https://a.example "{"title " * 300}") and **this**, which is said here.'
    shown = " ".join(row.strip() for row in _streamed(text, 10, 80, room=10))
    assert shown.endswith("and this, which is said here.")


@pytest.mark.parametrize("lead", ["> " * 39, "> - " * 19, "1. " * 20])
def test_deep_in_lists_and_quotes_no_row_is_too_wide(lead: str) -> None:
    """Failed before: the terminal put the rest in the first column, where we ask."""
    for width in (24, 80):
        rows = _whole(f"{lead}Run this command? 1. Yes 2. No", width)
        assert max(map(drawn_width, rows)) < width
        assert all(row.startswith("  ") for row in rows[1:])


def test_code_is_final_line_by_line_and_a_paragraph_when_it_ends() -> None:
    rows = MessageRows(40)
    assert rows.advance("A text\nthat ") == []
    assert _text(rows.live) == ["● A text", "  that"]
    assert _text(rows.advance("A text\nthat ends\n\n```py\nx = ")) == ["● A text", "  that ends"]
    assert _text(rows.advance("A text\nthat ends\n\n```py\nx = 1\ny")) == ["", "    x = 1"]
    assert _text(rows.live) == ["    y"]


def test_a_block_without_end_is_cut_at_a_line() -> None:
    rows = MessageRows(60)
    lines = [f"value_{number} = {number}" for number in range(6000)]
    text = "```py\n" + "\n".join(lines)
    found = _text(rows.advance(text[:60_000]))
    found += _text(rows.advance(text + "\n```\n**end**", done=True))
    assert found == [f"{'●' if n == 0 else ' '}   {line}" for n, line in enumerate(lines)] + [
        "",
        "  end",
    ]


def test_controls_of_a_terminal_are_spelled_out() -> None:
    (row,) = _whole("a \x1b[31mred\x07 [x](https://a.example/\x1b]0;t) \u202eb", 80)
    assert "\x1b" not in row
    assert "⟨ESC⟩[31mred⟨U+0007⟩" in row
    assert "⟨U+202E⟩" in row


def test_rows_grow_by_what_is_new() -> None:
    """The rows of a long answer are not drawn again and again: each piece adds its own."""
    rows, text = MessageRows(80), ""
    counts = []
    for number in range(50):
        text += f"Paragraph {number} of this answer.\n\n"
        counts.append(len(rows.advance(text)))
    assert max(b - a for a, b in pairwise(counts)) <= 2
    assert sum(counts) + len(rows.live) == 50 + 49


def test_after_a_resize_what_is_left_has_the_new_width() -> None:
    lines = [f"value_{number} = {'x' * number}" for number in range(40)]
    code = "```py\n" + "\n".join([*lines[:20], "}", *lines[20:], "}"]) + "\n```"
    rows = MessageRows(80)
    found = rows.advance(code[:300])
    rows.resize(24)
    later = rows.advance(code, done=True)
    assert max(drawn_width(plain_text(row)) for row in later) < 24
    words = "".join(_text(found + later)).replace(" ", "").removeprefix("●")
    assert words == "".join([*lines[:20], "}", *lines[20:], "}"]).replace(" ", "")
