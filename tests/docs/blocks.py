"""The blocks of code on a page, and running those that await without a function around them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRAGMENT = re.compile(r"^(async with|\w.* = await) ", re.MULTILINE)


def blocks(page: str, language: str = "python") -> list[str]:
    """The blocks of a page in this language."""
    found = BLOCK.findall((ROOT / page).read_text())
    return [text for name, text in found if name == language]


def fragment(page: str, word: str) -> str:
    """The one Python block of a page that has this word."""
    [found] = [block for block in blocks(page) if word in block]
    return found


def compiled(text: str) -> Any:
    """The code of a block; it may await."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(text, "page", "exec", flags=flags, dont_inherit=True)


async def run(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block with these names; the names after it."""
    running = eval(compiled(text), {}, names)
    if inspect.isawaitable(running):
        await running
    return names
