"""What `/copy` copies: the last answer, one of its code blocks, or the whole session."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence

from toolrest.errors import ToolrestError
from toolrest.timeline.blocks import Block, Code, Listing, Quote, read_blocks
from toolrest.timeline.cells import Cell, MessageCell
from toolrest.timeline.stored import markdown

_MOST = 700_000
"""Bytes that are handed to a terminal; they take more than one in three on the way."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class CopyError(ToolrestError):
    """There is no such text to copy."""


def copied_text(cells: Sequence[Cell], wanted: str) -> tuple[str, str]:
    """The name of what is wanted (`all`, a number, or nothing for the last answer) and its text.

    Controls are left out: a paste of them would press keys.
    """
    if wanted == "all":
        return "this session", _plain("\n\n".join(markdown(cells)))
    answers = (cell.text for cell in reversed(cells) if isinstance(cell, MessageCell))
    answer = next(filter(None, map(str.strip, answers)), None)
    if answer is None:
        raise CopyError("there is no answer to copy yet")
    if not wanted:
        return "the last answer", _plain(answer)
    blocks = list(_code(placed.block for placed in read_blocks(answer)))
    if not (wanted.isascii() and wanted.isdigit() and 0 < int(wanted[:9]) <= len(blocks)):
        count = f"{len(blocks)} code {'block' if len(blocks) == 1 else 'blocks'}"
        raise CopyError(f"the last answer has {count}: /copy, /copy NUMBER or /copy all")
    return f"code block {int(wanted)}", _plain(blocks[int(wanted) - 1].text)


def osc52(text: str) -> str:
    """What makes a terminal copy a text, where it allows that; nothing for one that is too long."""
    data = text.encode()
    return "" if len(data) > _MOST else f"\x1b]52;c;{b64encode(data).decode()}\x07"


def _code(blocks: Iterator[Block] | Sequence[Block]) -> Iterator[Code]:
    for block in blocks:
        if isinstance(block, Code):
            yield block
        elif isinstance(block, Quote):
            yield from _code(block.blocks)
        elif isinstance(block, Listing):
            for item in block.items:
                yield from _code(item.blocks)


def _plain(text: str) -> str:
    return _CONTROLS.sub("", text.replace("\r\n", "\n"))
