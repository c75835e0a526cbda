"""Markdown for the page: blocks of a bounded size, whatever a model writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest
from tests.web_ui.conftest import Client, Recorded

from toolrest.web_ui.feed import read_events
from toolrest.web_ui.markup import LiveMarkup, message_blocks

ROW = "| 1 | a cell with some words in it |\n"
TABLE = "| a | b |\n|--:|---|\n"
HUGE_TABLE = TABLE + ROW * (5_000_000 // len(ROW))
ELSEWHERE = "http://evil.test/x.png"
LINKS = {
    "[x](javascript:alert(1))": "",
    "[x](JaVaScRiPt:alert(1))": "",
    "[x](data:text/html,<script>alert(1)</script>)": "",
    "[x](vbscript:x)": "",
    "[x](file:///etc/passwd)": "",
    "[x](//evil.test)": "",
    "<javascript:alert(1)>": "",
    "[x](https://example.org)": "https://example.org",
    f"![x]({ELSEWHERE})": ELSEWHERE,
}
HARD = {
    "quotes": ">" * 10_000 + " x",
    "spaced quotes": "> " * 10_000 + "x",
    "lists": "".join("  " * depth + "- x\n" for depth in range(2_000)),
    "emphasis": "*a* " * 15_000,
    "open emphasis": "**a " * 15_000,
    "brackets": "[a](" * 15_000,
    "cells": "|" * 30_000 + "\n" + "|-" * 15_000,
    "html": "<div onclick=alert(1)>" * 2_500,
    "a fence": "```c\n" + "/*" * 9_000,
    "a fence of another language": "```js\n" + "`${" * 100 + "\n" + '"\\' * 8_000,
    "backticks": "`" * 60_000,
}


def spans_of(value: Any) -> list[Any]:
    """Every span of some blocks."""
    if isinstance(value, list):
        return [span for one in value for span in spans_of(one)]
    if isinstance(value, dict):
        own = [value] if "text" in value else []
        return own + [span for one in value.values() for span in spans_of(one)]
    return []


@pytest.mark.parametrize("text", LINKS)
def test_links_lead_to_the_web_alone(text: str) -> None:
    hrefs = {span["href"] for span in spans_of(message_blocks(text)) if "href" in span}
    assert hrefs == ({LINKS[text]} if LINKS[text] else set())


def test_html_is_text() -> None:
    text = "<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n&lt;b&gt;"
    found = message_blocks(text)
    assert found is not None
    assert [block["type"] for block in found] == ["paragraph"] * 3
    assert "\n\n".join(block["spans"][0]["text"] for block in found) == text


@pytest.mark.slow
def test_a_long_table_is_folded() -> None:
    found = message_blocks(f"# Here\n\n{HUGE_TABLE}\nafter it")
    assert found is not None
    heading, table, after = found
    assert (heading["type"], after["spans"][0]["text"]) == ("heading", "after it")
    assert len(table["rows"]) == 201
    assert table["more"] == HUGE_TABLE.count(ROW) - 200
    assert table["aligns"] == ["right", "left"]


@pytest.mark.parametrize("before", ["", "words\n", "```\n", "| a | b | c |\n|---|---|---|\n"])
def test_nothing_is_left_out_of_what_is_no_table(before: str) -> None:
    """Lines that look like rows of one may be code, a paragraph, or have other columns."""
    text = before + ROW * 300
    found = message_blocks(text)
    if found is not None:
        shown = json.dumps(found)
        kept = shown.count("a cell with some words") + sum(one.get("more", 0) for one in found)
        assert kept == 300


@pytest.mark.parametrize("name", HARD)
def test_no_text_makes_more_than_a_browser_draws(name: str) -> None:
    began = perf_counter()
    found = message_blocks(HARD[name])
    assert perf_counter() - began < 10
    assert found is None or len(spans_of(found)) < 6000


def test_code_is_coloured_and_stays_as_it_is() -> None:
    text = "def f():\n\n    return 'x'  # why\n"
    (block,) = message_blocks(f"```python\n{text}\n```") or []
    assert "".join(piece for _, piece in block["spans"]) == text
    assert ["magenta", "def "] in block["spans"]
    for other in ("", "no-such-language", "../../etc"):
        (plain,) = message_blocks(f"```{other}\n{text}```") or []
        assert plain["spans"] == [["", text.rstrip("\n")]]


WRITTEN = (
    "# One\n\ntwo **three**\n\n- a\n- b\n\n```python\nx = 1\n\ny = 2\n```\n\n| a |\n|---|\n| 1 |\n"
)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_what_is_written_piece_by_piece_is_the_same_in_the_end(size: int) -> None:
    markup, whole, last = LiveMarkup(), [], []
    for at in range(0, len(WRITTEN), size):
        found = markup.feed(WRITTEN[at : at + size])
        whole += found["whole"]
        last = found["open"]
    assert [*whole, *last] == message_blocks(WRITTEN)


def test_a_long_text_is_read_no_more_while_it_is_written() -> None:
    markup = LiveMarkup()
    words = "word " * 10_000
    assert "plain" not in markup.feed(words)
    assert markup.feed(words)["plain"] == words * 2
    assert markup.feed("more") == {"plain": "more"}
    assert markup.size == 0


@pytest.mark.slow
async def test_the_servers_loop_goes_on_while_markdown_is_read(
    client: Client, session: Recorded
) -> None:
    """The longest that anything else on the loop had to wait, in the best of three tries."""
    for text in (HUGE_TABLE, *HARD.values()):
        session.say("assistant", text)
    whole = session.path.stat().st_size

    async def everything() -> None:
        offset = 0
        while offset < whole:
            _, offset = await asyncio.to_thread(read_events, str(session.path), offset)
        answer = await client.get(f"/api/sessions/{session.id}/export?format=html")
        assert answer.status_code == 200

    assert min([await longest_wait(everything) for _ in range(3)]) < 0.05


async def longest_wait(act: Callable[[], Any]) -> float:
    """The longest pause between two turns of the loop while something is done."""
    longest = 0.0
    task = asyncio.ensure_future(act())
    while not task.done():
        before = perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, perf_counter() - before)
    await task
    return longest
