"""The layouts that a model reads, byte for byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.process.output import layout


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\r\nb\n", 2), ("a\x0bb\u2028c", 1)],
)
def test_line_count(text: str, lines: int) -> None:
    assert layout.line_count(text) == lines


@pytest.mark.parametrize(
    ("seconds", "rounded"),
    [(0.0, 0.0), (0.04, 0.0), (0.05, 0.1), (0.25, 0.3), (0.95, 1.0), (1.0, 1.0), (12.34, 12.3)],
)
def test_one_decimal(seconds: float, rounded: float) -> None:
    assert layout.one_decimal(seconds) == rounded


@pytest.mark.parametrize(("count", "estimate"), [(0, 0), (1, 1), (4, 1), (5, 2), (4000, 1000)])
def test_tokens(count: int, estimate: int) -> None:
    assert layout.tokens(count) == estimate


def test_structured() -> None:
    assert (
        layout.structured('größe "x"\n\x01', 3, 1.0)
        == '{"output":"größe \\"x\\"\\n\\u0001","metadata":{"exit_code":3,"duration_seconds":1.0}}'
    )


@given(st.text(), st.integers(-1, 255), st.floats(0, 10**6))
def test_structured_is_json(text: str, code: int, seconds: float) -> None:
    found = json.loads(layout.structured(text, code, seconds))
    assert found["output"] == text
    assert list(found) == ["output", "metadata"]
    assert list(found["metadata"]) == ["exit_code", "duration_seconds"]


def test_freeform() -> None:
    text = "one\ntwo\n"
    assert (
        layout.freeform(text, text, 0, 0.31)
        == "Exit code: 0\nWall time: 0.3 seconds\nOutput:\none\ntwo\n"
    )
    assert layout.freeform("", "", 1, 2.0) == "Exit code: 1\nWall time: 2 seconds\nOutput:\n"
    assert (
        layout.freeform("a\nb\nc\n", "a…c\n", 0, 0.0)
        == "Exit code: 0\nWall time: 0 seconds\nTotal output lines: 3\nOutput:\na…c\n"
    )
    assert "Total" not in layout.freeform("abcdef", "a…f", 0, 0.0)


def test_timeout_is_part_of_the_body() -> None:
    assert layout.body("so far") == "so far"
    assert layout.body("so far", 1.0019) == "command timed out after 1001 milliseconds\nso far"


def test_unified() -> None:
    assert layout.unified(
        "hi\n", chunk_id="00ff1a", wall_time=0.05123, original_bytes=3, exit_code=0
    ) == (
        "Chunk ID: 00ff1a\nWall time: 0.0512 seconds\nProcess exited with code 0\n"
        "Original token count: 1\nOutput:\nhi\n"
    )
    assert layout.unified(
        "", chunk_id="abcdef", wall_time=10.0, original_bytes=0, session_id=1000
    ) == (
        "Chunk ID: abcdef\nWall time: 10.0000 seconds\nProcess running with session ID 1000\n"
        "Original token count: 0\nOutput:\n"
    )
