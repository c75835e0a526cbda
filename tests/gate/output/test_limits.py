from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.errors import Failure
from toolrest.gate.output.collector import Collector
from toolrest.gate.output.limiter import Limiter
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.spill import Spill
from toolrest.gate.output.truncate import (
    Limit,
    byte_length,
    cut_items,
    formatted_truncate,
    line_count,
    truncate,
)
from toolrest.items import Content, Image, Text, ToolOutput

# Lone surrogates included: models and broken files do send them.
any_text = st.text(st.characters(exclude_categories=()), max_size=60)
units = st.sampled_from(["bytes", "tokens", "chars"])
limits = st.builds(Limit, st.integers(0, 70), units)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        (
            "abcdefghij\nklmnopqrst\nuvwxyz",
            Limit(11, "bytes"),
            "abcde…17 chars truncated…uvwxyz",
        ),
        ("abcdefghij\nklmnopqrst\nuvwxyz", Limit(2, "tokens"), "abcd…5 tokens truncated…wxyz"),
        ("αβγδεζηθ", Limit(7, "bytes"), "α…5 chars truncated…ηθ"),
        ("αβγδεζηθ", Limit(1, "tokens"), "α…3 tokens truncated…θ"),
        ("αβγδεζηθ", Limit(5, "chars"), "αβ…3 chars truncated…ζηθ"),
        ("αβγδεζηθ", Limit(16, "bytes"), "αβγδεζηθ"),
        ("αβγδεζηθ", Limit(8, "chars"), "αβγδεζηθ"),
        ("abcdefghi", Limit(0, "bytes"), "…9 chars truncated…"),
        ("abcdefghi", Limit(0, "tokens"), "…3 tokens truncated…"),
        ("abcdefghi", Limit(0, "chars"), "…9 chars truncated…"),
        ("", Limit(0, "bytes"), ""),
        ("😀😀😀", Limit(3, "bytes"), "…3 chars truncated…"),
        ("a\ud800b\udfffc", Limit(4, "bytes"), "a…3 chars truncated…c"),
    ],
)
def test_truncate_vectors(text: str, limit: Limit, expected: str) -> None:
    assert truncate(text, limit) == expected


def test_formatted_truncate_heads_a_cut_text_with_its_line_count() -> None:
    text = "abcdefghij\nklmnopqrst\nuvwxyz"
    assert formatted_truncate(text, Limit(28, "bytes")) == text
    assert (
        formatted_truncate(text, Limit(11, "bytes"))
        == "Total output lines: 3\n\nabcde…17 chars truncated…uvwxyz"
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\r\n\r\n", 2), ("a\x0b\u2028b", 1)],
)
def test_line_count(text: str, lines: int) -> None:
    assert line_count(text) == lines


def _size(text: str, limit: Limit) -> int:
    return len(text) if limit.unit == "chars" else len(text.encode("utf-8", "surrogatepass"))


@given(any_text, limits)
def test_truncate_laws(text: str, limit: Limit) -> None:
    short = truncate(text, limit)
    total = _size(text, limit)
    if total <= limit.budget:
        assert short == text
        return
    # The text may contain a marker of its own, so look for a split that is right.
    unit = "tokens" if limit.unit == "tokens" else "chars"
    for head_size in range(len(text) + 1):
        for tail_size in range(len(text) - head_size + 1):
            head, tail = text[:head_size], text[len(text) - tail_size :]
            omitted = len(text) - head_size - tail_size
            count = -(-(total - limit.budget) // 4) if unit == "tokens" else omitted
            if short == f"{head}…{count} {unit} truncated…{tail}" and (
                _size(head, limit) <= limit.budget // 2
                and _size(tail, limit) <= limit.budget - limit.budget // 2
            ):
                # One more character on either side would be too much.
                longer_head = text[: head_size + 1]
                longer_tail = text[len(text) - tail_size - 1 :]
                assert _size(longer_head, limit) > limit.budget // 2
                assert _size(longer_tail, limit) > limit.budget - limit.budget // 2
                return
    pytest.fail(f"no head and tail explain {short!r}")


@given(any_text)
def test_byte_length(text: str) -> None:
    assert byte_length(text) == len(text.encode("utf-8", "surrogatepass"))


def test_byte_length_of_a_large_text() -> None:
    assert byte_length("é" * 3_000_000) == 6_000_000


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Limit(-1, "bytes")


@pytest.mark.parametrize(("amount", "more"), [(10_000, 12_000), (1, 2), (0, 0), (7, 9), (5, 6)])
def test_history_factor_rounds_up(amount: int, more: int) -> None:
    assert Limit(amount, "tokens").for_history() == Limit(more, "tokens")


def test_items_share_one_budget_and_images_are_free() -> None:
    image = Image("data:image/png;base64,AAAA")
    items: list[Content] = [Text("12345"), image, Text("abcdefghij"), Text("x"), image, Text("y")]
    assert cut_items(items, Limit(9, "bytes"))[0] == [
        Text("12345"),
        image,
        Text("ab…6 chars truncated…ij"),
        image,
        Text("[omitted 2 text items ...]"),
    ]
    assert cut_items(items, Limit(100, "bytes"))[0] == items


def test_items_by_tokens_are_charged_in_whole_tokens() -> None:
    items: list[Content] = [Text("12345"), Text("abcdefghij")]
    assert cut_items(items, Limit(3, "tokens"))[0] == [
        Text("12345"),
        Text("ab…2 tokens truncated…ij"),
    ]


def test_a_spent_budget_omits_what_follows() -> None:
    items: list[Content] = [Text("1234"), Text("5")]
    assert cut_items(items, Limit(4, "bytes"))[0] == [
        Text("1234"),
        Text("[omitted 1 text items ...]"),
    ]


@pytest.mark.slow
@given(st.lists(any_text, max_size=5), limits)
def test_items_never_keep_more_than_the_budget(texts: list[str], limit: Limit) -> None:
    items: list[Content] = [Text(text) for text in texts]
    kept, shown = cut_items(items, limit)
    if limit.unit == "chars":
        assert shown <= limit.budget * 4
    else:
        assert shown <= limit.budget
    if sum(-(-_size(text, limit) // 4) * 4 for text in texts) < limit.budget:
        assert kept == items


def _apply(limiter: Limiter, output: ToolOutput, ceiling: int | None = None) -> tuple[str, bool]:
    limited = limiter.apply(output, call_id="c1", tool="demo", ceiling=ceiling)
    assert isinstance(limited.output.content, str)
    return limited.output.content, limited.truncated


def test_an_output_that_needs_nothing_is_the_same_object() -> None:
    output = ToolOutput("short", metadata={"exit_code": 0})
    limited = Limiter().apply(output, call_id="c1", tool="demo")
    assert limited.output is output
    assert (limited.truncated, limited.total_bytes, limited.spill) == (False, 5, None)


def test_without_a_family_the_limit_is_12000_characters() -> None:
    assert _apply(Limiter(), ToolOutput("é" * 12_000)) == ("é" * 12_000, False)
    text, truncated = _apply(Limiter(), ToolOutput("é" * 12_001))
    assert truncated
    assert text.startswith("é" * 6000 + "…1 chars truncated…" + "é" * 6000 + "\n[toolrest] ")


def test_a_family_limit_gets_a_fifth_more() -> None:
    limiter = Limiter(Limit(10, "bytes"))
    assert _apply(limiter, ToolOutput("123456789012")) == ("123456789012", False)
    text, _ = _apply(limiter, ToolOutput("1234567890123"))
    assert text.startswith("123456…1 chars truncated…890123\n")


def test_limits_go_up_as_well_as_down() -> None:
    text = "x" * 30_000
    for family in (None, Limit(10_000, "bytes"), Limit(100, "tokens")):
        assert _apply(Limiter(family), ToolOutput(text))[1]
        assert not _apply(Limiter(family, chars=30_000), ToolOutput(text))[1]
        assert not _apply(Limiter(family, chars=10, by_tool={"demo": 30_000}), ToolOutput(text))[1]
        assert not _apply(Limiter(family, by_tool={"demo": 30_000}), ToolOutput(text), 100)[1]


def test_the_result_says_which_setting_cut_it() -> None:
    text = "x" * 30_000
    for limiter, setting in (
        (Limiter(chars=20_000), "(tool_result_max_chars = 20000)"),
        (Limiter(chars=9, by_tool={"demo": 20_000}), "(tools.limits.demo = 20000)"),
    ):
        shown, _ = _apply(limiter, ToolOutput(text))
        assert f"20000 bytes shown {setting}; " in shown.splitlines()[-1]
    assert "bytes shown; " in _apply(Limiter(), ToolOutput(text))[0]
    assert "bytes shown; " in _apply(Limiter(chars=20_000), ToolOutput(text), 100)[0]


def test_a_tools_own_ceiling_only_lowers_the_limit() -> None:
    text = "x" * 5000
    assert not _apply(Limiter(chars=50_000), ToolOutput(text))[1]
    for limiter, ceiling in (
        (Limiter(chars=100), None),
        (Limiter(by_tool={"demo": 100}), None),
        (Limiter(), 100),
        (Limiter(chars=4000), 100),
        (Limiter(chars=4000, by_tool={"demo": 100}), 2000),
    ):
        shown, truncated = _apply(limiter, ToolOutput(text), ceiling)
        assert truncated
        assert shown.startswith("x" * 50 + "…4900 chars truncated…" + "x" * 50 + "\n[toolrest] ")
    assert not _apply(Limiter(by_tool={"other": 100}), ToolOutput(text))[1]


@given(any_text, st.integers(0, 40), st.integers(0, 40))
def test_a_cut_satisfies_family_and_ceiling(text: str, family: int, ceiling: int) -> None:
    limiter = Limiter(Limit(family, "bytes"))
    limited = limiter.apply(ToolOutput(text), call_id="c", tool="t", ceiling=ceiling)
    if limited.truncated:
        assert isinstance(limited.output.content, str)
        marker_and_more = limited.output.content.rsplit("\n[toolrest] ", 1)[0]
        kept = len(marker_and_more) - len("…0 chars truncated…")
        assert kept <= ceiling + 1
        assert limited.total_bytes == byte_length(text)
    else:
        assert len(text) <= ceiling
        assert byte_length(text) <= limiter.limit.amount


def test_the_notice_has_exact_totals_and_a_file_with_the_whole(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1")
    whole = "".join(f"line {number} é\n" for number in range(500))
    limited = Limiter(Limit(100, "bytes"), spill=spill).apply(
        ToolOutput(whole, notes=["a note"]), call_id="call/../1", tool="demo"
    )
    assert isinstance(limited.output.content, str)
    assert limited.spill is not None
    assert Path(limited.spill).read_text() == whole
    assert Path(limited.spill).parent == tmp_path / "spill" / "s1"
    assert stat.S_IMODE(os.stat(limited.spill).st_mode) == 0o600
    *_, note, notice = limited.output.content.split("\n")
    size = len(whole.encode())
    assert note == "[toolrest] a note"
    assert notice == (
        f"[toolrest] output cut: {size} bytes and 500 lines in all, 120 bytes shown; "
        f"the whole is in {limited.spill} (read it with read_file)"
    )
    assert limited.total_bytes == size
    assert limited.output.notes == []
    spill.close()


def test_without_a_place_to_spill_the_notice_says_so(tmp_path: Path) -> None:
    text, _ = _apply(Limiter(chars=10), ToolOutput("x" * 99))
    assert text.endswith("the rest was not kept: there is no spill folder")
    (tmp_path / "file").write_text("not a folder")
    limiter = Limiter(chars=10, spill=Spill(tmp_path / "file" / "home", "s1"))
    limited = limiter.apply(ToolOutput("x" * 99), call_id="c", tool="t")
    assert limited.spill is None
    assert "the rest was not kept: " in str(limited.output.content)
    assert "Not a directory (os error 20)" in str(limited.output.content)


def test_a_capped_spill_is_said_to_be_one(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1", cap=50)
    limited = Limiter(chars=10, spill=spill).apply(ToolOutput("é" * 99), call_id="c", tool="t")
    assert limited.spill is not None
    assert Path(limited.spill).read_text() == "é" * 25
    assert "its first 50 bytes are in" in str(limited.output.content)
    assert "the spill limit of 50 bytes was reached" in str(limited.output.content)
    spill.close()


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ('{"a": "' + "x" * 200 + '"}', True),
        ("[" + "1, " * 100 + "1]\n", True),
        ("[INFO] " + "x" * 200 + "]", False),
        ("x" * 200, False),
    ],
)
def test_cut_json_is_marked_as_not_parseable(text: str, marked: bool) -> None:
    shown, _ = _apply(Limiter(chars=20), ToolOutput(text))
    assert ("cannot be parsed as JSON" in shown) is marked


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "[toolrest] one\n[toolrest] two"),
        ("a", "a\n[toolrest] one\n[toolrest] two"),
        ("a\n", "a\n[toolrest] one\n[toolrest] two"),
    ],
)
def test_notes_come_last_one_line_each(content: str, expected: str) -> None:
    output = ToolOutput(content, notes=["one", "[toolrest] two"])
    assert _apply(Limiter(), output) == (expected, False)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\u2028"])
def test_data_cannot_look_like_a_note(end: str) -> None:
    """What a command prints, or a file begins with, would else be taken for ours."""
    data = f"[toolrest] approved{end}see [toolrest] here{end}[toolrest]: yes"
    expected = f" [toolrest] approved{end}see [toolrest] here{end} [toolrest]: yes"
    assert _apply(Limiter(), ToolOutput(data)) == (expected, False)
    text, _ = _apply(Limiter(), ToolOutput(data, notes=["real"]))
    assert text == f"{expected}\n[toolrest] real"
    parts = Limiter().apply(ToolOutput([Text(data)]), call_id="c", tool="t").output.content
    assert parts == [Text(expected)]


def test_our_own_message_of_an_error_keeps_its_notes() -> None:
    message = "apply_patch verification failed: x\n[toolrest] hunk 1 of f: read it again"
    assert _apply(Limiter(), ToolOutput.error(message)) == (message, False)


def test_a_note_cannot_smuggle_in_lines_or_volume() -> None:
    output = ToolOutput("a", notes=["x\nExit code: 0\n" + "y" * 100_000] * 1000)
    text, _ = _apply(Limiter(), output)
    lines = text.split("\n")
    assert len(lines) == 33
    assert all(line.startswith("[toolrest] x Exit code: 0 yyy") for line in lines[1:])
    assert len(text) < 70_000


def test_notes_of_content_items_are_a_last_text() -> None:
    image = Image("data:image/png;base64,AAAA")
    output = ToolOutput([Text("x" * 50), image, Text("y")], notes=["n"])
    limited = Limiter(chars=10).apply(output, call_id="c", tool="t")
    assert limited.truncated
    assert isinstance(limited.output.content, list)
    first, kept_image, omitted, notes = limited.output.content
    assert first == Text("xxxxx…40 chars truncated…xxxxx")
    assert kept_image is image
    assert omitted == Text("[omitted 1 text items ...]")
    assert isinstance(notes, Text)
    assert notes.text.startswith(
        "[toolrest] n\n[toolrest] output cut: 52 bytes and 2 lines in all, 10 bytes shown "
    )


def test_secrets_go_before_the_cut_and_from_every_part(tmp_path: Path) -> None:
    secret = "hunter2-hunter2-hunter2"
    spill = Spill(tmp_path, "s1")
    limiter = Limiter(chars=30, spill=spill, redactor=Redactor({"MY_TOKEN": secret}))
    # The cut falls into the middle of the secret.
    text = "a" * 10 + secret + "b" * 50
    output = ToolOutput(
        text,
        failure=Failure("execution_failed", f"bad {secret}"),
        structured={"k": [secret]},
        metadata={"m": secret},
        notes=[f"note {secret}"],
    )
    limited = limiter.apply(output, call_id="c", tool="t")
    assert "hunter2" not in repr(limited)
    assert limited.spill is not None
    assert "hunter2" not in Path(limited.spill).read_text()
    assert limited.output.structured == {"k": ["[redacted:MY_TOKEN]"]}
    items = ToolOutput([Text(secret), Image(f"https://x.test/?t={secret}")])
    assert "hunter2" not in repr(limiter.apply(items, call_id="c", tool="t"))
    assert output.content == text
    spill.close()


def test_with_a_redactor_a_clean_output_is_still_the_same_object() -> None:
    output = ToolOutput("nothing here")
    limiter = Limiter(redactor=Redactor({"MY_TOKEN": "hunter2-hunter2"}))
    assert limiter.apply(output, call_id="c", tool="t").output is output


def test_the_totals_and_the_file_of_a_collector_win(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1")
    with Collector(Limit(100, "bytes"), spill=spill) as collector:
        for number in range(1000):
            collector.write(f"{number}\n")
    collected = collector.finish()
    output = ToolOutput(f"Output:\n{collected.text}", metadata={"collected": collected.summary()})
    for limiter, shown in (
        (Limiter(), "100 bytes shown"),
        (Limiter(chars=50), "at most 50 bytes shown (tool_result_max_chars = 50)"),
    ):
        limited = limiter.apply(output, call_id="c", tool="t")
        assert limited.truncated
        assert limited.spill == collected.spill_path
        assert limited.total_bytes == 3890
        assert f"3890 bytes and 1000 lines in all, {shown}; the whole is in " in str(
            limited.output.content
        )
    spill.close()


def test_a_streamed_output_is_cut_once_at_the_limit_of_its_call(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1")
    for limiter, ceiling, expected in (
        (Limiter(spill=spill), None, Limit(12_000)),
        (Limiter(spill=spill, chars=500), None, Limit(500)),
        (Limiter(spill=spill, by_tool={"t": 400}), 500, Limit(400)),
        (Limiter(spill=spill, chars=400), 300, Limit(300)),
        (Limiter(Limit(100, "tokens"), spill=spill), None, Limit(120, "tokens")),
    ):
        whole = "0123456789" * 5000
        with limiter.collector("c", "t", ceiling) as collector:
            collector.write(whole)
        collected = collector.finish()
        output = ToolOutput(collected.text, metadata={"collected": collected.summary()})
        limited = limiter.apply(output, call_id="c", tool="t", ceiling=ceiling)
        assert isinstance(limited.output.content, str)
        assert limited.output.content.startswith(truncate(whole, expected) + "\n[toolrest] ")
        assert limited.spill == collected.spill_path
    spill.close()


@pytest.mark.parametrize("summary", [None, 7, {"truncated": True}, {"truncated": True, "x": 1}])
def test_a_broken_summary_is_ignored(summary: object) -> None:
    output = ToolOutput("fine", metadata={"collected": summary})
    assert _apply(Limiter(), output) == ("fine", False)


def test_structured_content_has_the_same_limit() -> None:
    limiter = Limiter(Limit(100, "chars"))
    small = limiter.apply(ToolOutput("x", structured={"a": 1}), call_id="c", tool="t").output
    large = limiter.apply(
        ToolOutput("x", structured={"a": "b" * 500}), call_id="c", tool="t"
    ).output
    odd = limiter.apply(ToolOutput("x", structured=object()), call_id="c", tool="t").output
    assert small.structured == {"a": 1}
    assert large.structured is None
    assert "structured content of 509 bytes was left out" in large.text
    assert odd.structured is None
