"""Markdown as blocks: the one reading of a model's text that the chat, the page and exports draw.

Blocks are data, without anything of a terminal or of HTML, and their text is as the model wrote
it: whoever draws it makes it safe. HTML is text, and links are links to the web alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

Align: TypeAlias = Literal["left", "center", "right"]


class Span(Struct, frozen=True, omit_defaults=True):
    """A piece of text. Its style is none or more of `bold`, `emphasis`, `struck` and `code`."""

    text: str
    style: str = ""
    href: str = ""
    """The address of a link: http or https, of printable ASCII letters."""


Spans: TypeAlias = tuple[Span, ...]


class Paragraph(Struct, frozen=True, tag="paragraph"):
    """A paragraph; the line breaks that the model wrote are kept."""

    spans: Spans


class Heading(Struct, frozen=True, tag="heading"):
    """A heading of level 1 to 6."""

    level: int
    spans: Spans


class Code(Struct, frozen=True, tag="code"):
    """A block of code, without its fence."""

    text: str
    language: str = ""


class Quote(Struct, frozen=True, tag="quote"):
    """A quotation."""

    blocks: tuple[Block, ...]


class Item(Struct, frozen=True):
    """An item of a list: its mark (`•` or `3.`), and the state of its box where it is a task."""

    mark: str
    blocks: tuple[Block, ...]
    checked: bool | None = None


class Listing(Struct, frozen=True, tag="list"):
    """A list; a tight one has no empty lines between its items."""

    items: tuple[Item, ...]
    tight: bool = True


class Table(Struct, frozen=True, tag="table"):
    """A table; its first row is the head, and all rows have as many cells as `aligns`."""

    aligns: tuple[Align, ...]
    rows: tuple[tuple[Spans, ...], ...]


class Rule(Struct, frozen=True, tag="rule"):
    """A line across."""


Block: TypeAlias = Paragraph | Heading | Code | Quote | Listing | Table | Rule


class Placed(Struct, frozen=True):
    """A block and the number of the text's line that it begins in, from 0."""

    block: Block
    line: int


_MARKER = r"[ \t]*(?:>|[*+-](?=[ \t])|\d{1,9}[.)](?=[ \t]))"
_TOO_DEEP = re.compile(rf"^(?:[ \t]{{200}}|(?:{_MARKER}){{50}})", re.MULTILINE)
_NESTING = 300
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_PART = r"\s<>\"'`\x00-\x1f\x7f-\x9f"
_ADDRESS = re.compile(rf"https?://[^{_PART}]*[^{_PART}.,;:!?*)\]}}]")
_LONGEST = 2000
_MOST_BRACKETS = 300
"""Of one paragraph: for each of them a link's end is looked for in all that follows."""
_STYLES = {"strong": "bold", "em": "emphasis", "s": "struck"}
_ALIGNS: dict[str, Align] = {"text-align:right": "right", "text-align:center": "center"}


def read_blocks(text: str) -> list[Placed]:
    """The blocks of a text; one that nests too deep is a single paragraph."""
    if not text.strip():
        return []
    try:
        if not _TOO_DEEP.search(text):
            return list(_placed(_parser().parse(text)))
    except RecursionError:
        pass
    return [Placed(Paragraph((Span(text.strip("\n")),)), 0)]


@cache
def _parser() -> MarkdownIt:
    # Slow to import, and not needed before the first answer.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING})
    parser.core.ruler.before("inline", "brackets", _keep_brackets)
    # References could change what was drawn: a definition may come later than its use.
    return parser.enable(["table", "strikethrough"]).disable(
        ["html_block", "html_inline", "reference", "entity"]
    )


def _keep_brackets(state: StateCore) -> None:
    """Leave text with very many brackets as it is."""
    for token in state.tokens:
        if token.type == "inline" and token.content.count("[") > _MOST_BRACKETS:
            token.type = "text"
            token.children = [token.copy(children=None)]


def _placed(tokens: Sequence[Token]) -> Iterator[Placed]:
    for inside in _siblings(tokens):
        block = _block(inside)
        if block is not None:
            yield Placed(block, inside[0].map[0] if inside[0].map else 0)


def _siblings(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The tokens of each block, from the one that opens it to the one that closes it."""
    level = start = 0
    for at, token in enumerate(tokens):
        level += token.nesting
        if level == 0:
            yield tokens[start : at + 1]
            start = at + 1


def _block(tokens: Sequence[Token]) -> Block | None:
    first, inside = tokens[0], tokens[1:-1]
    match first.type:
        case "paragraph_open":
            return Paragraph(_spans(inside))
        case "heading_open":
            return Heading(int(first.tag[1:]), _spans(inside))
        case "fence" | "code_block":
            language = first.info.split()[:1]
            return Code(first.content.removesuffix("\n"), language[0] if language else "")
        case "blockquote_open":
            return Quote(_blocks(inside))
        case "bullet_list_open" | "ordered_list_open":
            return _listing(inside)
        case "table_open":
            return _table(inside)
        case "hr":
            return Rule()
    return None


def _blocks(tokens: Sequence[Token]) -> tuple[Block, ...]:
    found = (_block(inside) for inside in _siblings(tokens))
    return tuple(block for block in found if block is not None)


def _listing(tokens: Sequence[Token]) -> Listing:
    is_tight = not any(
        token.type == "paragraph_open" and token.level == tokens[0].level + 1 and not token.hidden
        for token in tokens
    )
    return Listing(tuple(_item(inside) for inside in _siblings(tokens)), is_tight)


def _item(tokens: Sequence[Token]) -> Item:
    first, blocks = tokens[0], _blocks(tokens[1:-1])
    mark = f"{first.info}{first.markup}" if first.info else "•"
    match blocks:
        case (Paragraph((Span(text=text, style="", href="") as span, *more)), *others) if (
            task := _TASK.match(text)
        ):
            rest = Paragraph((Span(text[task.end() :], span.style), *more))
            return Item(mark, (rest, *others), task[1] != " ")
    return Item(mark, blocks)


def _table(tokens: Sequence[Token]) -> Table:
    rows: list[tuple[Spans, ...]] = []
    aligns: list[Align] = []
    for part in _siblings(tokens):
        for row in _siblings(part[1:-1]):
            cells = list(_siblings(row[1:-1]))
            if not rows:
                aligns = [_ALIGNS.get(str(cell[0].attrGet("style")), "left") for cell in cells]
            rows.append(tuple(_spans(cell[1:-1]) for cell in cells))
    return Table(tuple(aligns), tuple(rows))


def _spans(tokens: Sequence[Token]) -> Spans:
    children = [child for token in tokens for child in token.children or ()]
    found: list[Span] = []
    for span in _inline(children):
        if found and (found[-1].style, found[-1].href) == (span.style, span.href):
            span = Span(found.pop().text + span.text, span.style, span.href)
        if span.text:
            found.append(span)
    return tuple(found)


def _inline(tokens: Sequence[Token]) -> Iterator[Span]:
    styles = Counter[str]()
    link, label = "", ""
    for token in tokens:
        kind, style = token.type, " ".join(styles)
        if kind in ("softbreak", "hardbreak"):
            yield Span("\n", style, _web(link))
        elif kind == "link_open":
            link, label = str(token.attrGet("href") or ""), ""
        elif kind == "link_close":
            yield from _shown_address(link, label)
            link = ""
        elif kind == "image":
            label = token.content or "image"
            source = str(token.attrGet("src") or "")
            yield Span(label, style, _web(source))
            yield from _shown_address(source, label)
        elif token.nesting > 0:
            styles[_STYLES[token.tag]] += 1
        elif token.nesting < 0:
            styles[_STYLES[token.tag]] -= 1
            styles = +styles  # those that are still open
        elif kind == "code_inline":
            label += token.content
            yield Span(token.content, f"{style} code".lstrip(), _web(link))
        elif link:
            label += token.content
            yield Span(token.content, style, _web(link))
        else:
            yield from _with_addresses(token.content, style)


def _with_addresses(text: str, style: str) -> Iterator[Span]:
    """A text whose addresses are links."""
    at = 0
    for found in _ADDRESS.finditer(text):
        address = found[0]
        if address.count("(") > address.count(")") and text[found.end() :][:1] == ")":
            address += ")"
        yield Span(text[at : found.start()], style)
        leads = _web(_parser().normalizeLink(address))
        yield Span(address, style, leads)
        if not address.split("/")[2].isascii():  # letters of another alphabet look like ours
            yield from _shown_address(leads, address)
        at = found.start() + len(address)
    yield Span(text[at:], style)


def _web(address: str) -> str:
    """The address if it is one of the web that is safe to hand on, else nothing."""
    plain = address.isascii() and address.isprintable() and " " not in address
    is_web = address.lower().startswith(("https://", "http://"))
    return address if is_web and plain and len(address) <= _LONGEST else ""


def _shown_address(address: str, label: str) -> Iterator[Span]:
    """The address behind a link that says something else: where it leads is seen."""
    same = (address, address.removesuffix("/"))
    named = (label, f"https://{label}", f"http://{label}")
    if address and not set(same) & set(named):
        yield Span(" (")
        yield Span(address, "", _web(address))
        yield Span(")")
