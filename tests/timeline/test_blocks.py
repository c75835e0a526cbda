"""Markdown read into blocks: what the chat, the page and exports draw."""

from __future__ import annotations

from time import thread_time

import msgspec
import pytest

from toolrest.timeline.blocks import (
    Block,
    Code,
    Heading,
    Item,
    Listing,
    Paragraph,
    Placed,
    Quote,
    Rule,
    Span,
    Table,
    read_blocks,
)


def _read(text: str) -> list[Block]:
    return [placed.block for placed in read_blocks(text)]


def _plain(text: str) -> Paragraph:
    return Paragraph((Span(text),))


def test_each_kind_of_block_is_read_with_its_line() -> None:
    text = (
        "# Plan\n\nfirst\nsecond\n\n- [x] done\n  - nested\n\n3. third\n\n> said\n\n"
        "| a | b |\n|---|--:|\n| 1 | |\n\n~~~py extra\nx = 1\n~~~\n\n---\n"
    )
    nested = Listing((Item("•", (_plain("nested"),)),))
    assert read_blocks(text) == [
        Placed(Heading(1, (Span("Plan"),)), 0),
        Placed(_plain("first\nsecond"), 2),
        Placed(Listing((Item("•", (_plain("done"), nested), checked=True),)), 5),
        Placed(Listing((Item("3.", (_plain("third"),)),)), 8),
        Placed(Quote((_plain("said"),)), 10),
        Placed(
            Table(
                ("left", "right"), (((Span("a"),), (Span("b"),)), ((Span("1"),), ()))
            ),
            12,
        ),
        Placed(Code("x = 1", "py"), 16),
        Placed(Rule(), 20),
    ]  # fmt: skip


def test_styles_of_a_text_add_up() -> None:
    (block,) = _read("**bold _both_** `code` ~~gone~~")
    assert block == Paragraph(
        (
            Span("bold ", "bold"),
            Span("both", "bold emphasis"),
            Span(" "),
            Span("code", "code"),
            Span(" "),
            Span("gone", "struck"),
        )
    )


@pytest.mark.parametrize(
    ("text", "shown", "address"),
    [
        ("<https://a.example/b>", "https://a.example/b", "https://a.example/b"),
        ("see https://a.example/b_c.", "see https://a.example/b_c.", "https://a.example/b_c"),
        ("[here](https://a.example)", "here (https://a.example)", "https://a.example"),
        ("[a.example](https://a.example/)", "a.example", "https://a.example/"),
        (
            "[https://bank.example](https://evil.example)",
            "https://bank.example (https://evil.example)",
            "https://evil.example",
        ),
        ("![cat](http://a.example/c.png)", "cat (http://a.example/c.png)", "http://a.example/c.png"),
        (
            "see https://b\u0430nk.example now",
            "see https://b\u0430nk.example (https://xn--bnk-6cd.example) now",
            "https://xn--bnk-6cd.example",
        ),
        ("[cart](src/cart.py)", "cart (src/cart.py)", None),
        ("[x](javascript:alert)", "[x](javascript:alert)", None),
        ("[x](file:///etc/passwd)", "[x](file:///etc/passwd)", None),
        ("<b>&amp;</b> [ref]\n\n[ref]: #there", "<b>&amp;</b> [ref]", None),
    ],
)  # fmt: skip
def test_only_the_web_is_linked_and_where_a_link_leads_is_seen(
    text: str, shown: str, address: str | None
) -> None:
    block = _read(text)[0]
    assert isinstance(block, Paragraph)
    assert "".join(span.text for span in block.spans) == shown
    assert {span.href for span in block.spans if span.href} == ({address} if address else set())


def test_blocks_are_data_that_json_keeps() -> None:
    read = read_blocks("# a\n\n- [ ] b\n\n> `c`\n\n| d |\n|---|\n| e |\n\n    f\n\n---\n")
    assert msgspec.json.decode(msgspec.json.encode(read), type=list[Placed]) == read


@pytest.mark.parametrize(
    "text",
    [
        "> " * 60 + "deep",
        "- " * 60 + "deep",
        " " * 300 + "deep",
        "".join(" " * depth + "- a\n" for depth in range(0, 300, 2)),
    ],
)
def test_a_text_that_nests_too_deep_is_one_paragraph(text: str) -> None:
    assert _read(text) == [_plain(text.strip("\n"))]


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["[", "![", "*a ", "_*", "<", "`", "|a", "> ", "**a ~~", "*"])
def test_no_text_takes_long_to_read(piece: str) -> None:
    text = piece * (50_000 // len(piece)) + "a" + piece[::-1] * (50_000 // len(piece))
    began = thread_time()
    assert read_blocks(text)
    assert thread_time() - began < 4
