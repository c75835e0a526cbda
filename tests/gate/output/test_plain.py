from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolrest.gate.output.collector import Collector
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.truncate import Limit
from toolrest.process.output.terminal_text import LONGEST, PlainText


def _plain(*chunks: str) -> str:
    plain = PlainText()
    return "".join(map(plain.feed, chunks)) + plain.flush()


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("nothing special\n\ttab é\n", "nothing special\n\ttab é\n"),
        ("\x1b[1;31merror\x1b[0m: x\n", "error: x\n"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "alink\n"),
        ("\x1b(B\x1b=\x1b7x\x9b31my", "xy"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("10%\r50%\r100%\ndone", "100%\ndone"),
        ("10%\r50%\r", "50%"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("\b\bx", "x"),
        ("\x1b]0;never ends\nvisible\n", "0;never ends\nvisible\n"),
        ("\x1b[12", "12"),
        ("", ""),
    ],
)
def test_what_is_left(raw: str, plain: str) -> None:
    assert _plain(raw) == plain


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["\x1b[0m", "\x1b]0;t\x07", "\r", "\r\n", "\n", "\b", "\x1b", "abc"]),
            st.text(max_size=5),
        ),
        max_size=20,
    )
)
@example(["x" * LONGEST, "\r", "y", "\n"])
@example(["x" * (LONGEST - 2), "\x1b[0m", "y" * LONGEST, "\rz\n"])
@example(["x" * LONGEST * 2, "\n", "\rz"])
def test_any_chunking_gives_the_same(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert _plain(*pieces) == _plain(whole)
    if len(whole) < 1000:
        assert _plain(*whole) == _plain(whole)


def test_hostile_escapes_take_linear_time() -> None:
    for raw in (
        "\x1b]" * 500_000,
        "\x1b[1;" * 250_000,
        "\x1b[" + "1;" * 500_000,
        "\x1b " * 500_000,
    ):
        _plain(raw)


def test_a_collector_counts_what_is_left_and_finds_secrets_under_colours() -> None:
    collector = Collector(Limit(1000), redactor=Redactor({"K": "secretsecret"}), plain=True)
    for chunk in (b"\x1b[3", b"1msecret\x1b[0msecret\r\n", b"50%\r", b"100%\r\n"):
        collector.write(chunk)
    collected = collector.finish()
    assert collected.text == "[redacted:K]\n100%\n"
    assert (collected.total_bytes, collected.total_lines) == (18, 2)
