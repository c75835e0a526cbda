"""From shell text to a `Script`: the simplest by themselves, all others over bash's grammar."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from toolrest.policy.shell import Problem, Script
from toolrest.policy.shell_compound import Walker
from toolrest.policy.shell_constants import constants_of
from toolrest.policy.shell_simple import parse_simple

if TYPE_CHECKING:
    from tree_sitter import Language

MAX_LENGTH = 1 << 20

# The grammar gets slow on long broken input, these pieces of it above all. A script of this
# size does not fit on a command line anyway.
MAX_PARSED = 1 << 18
MAX_COUNTS = (("|", 5_000), ("<<", 4_000), ("=(", 2_000))

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@cache
def _grammar() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(text: str) -> Script:
    """Read a script. Never raises: what cannot be understood is listed in `problems`."""
    if len(text) > MAX_LENGTH:
        return Script(too_big=f"it is longer than {MAX_LENGTH} characters")
    if _CONTROL.search(text):
        return Script(problems=[Problem("unknown.characters", "it holds control characters")])
    simple = parse_simple(text)
    if simple is not None:
        return simple
    too_big = _too_big(text)
    if too_big:
        return Script(too_big=too_big)
    try:
        return parse_tree(text)
    except Exception as error:
        # A mistake of ours must not let anything through, nor end the session.
        why = f"reading it failed: {type(error).__name__}"
        return Script(problems=[Problem("unknown.internal", why)])


def _too_big(text: str) -> str:
    if len(text) > MAX_PARSED:
        return f"it is longer than {MAX_PARSED} characters"
    for piece, limit in MAX_COUNTS:
        if text.count(piece) > limit:
            return f"it holds `{piece}` more than {limit} times"
    return ""


def parse_tree(text: str) -> Script:
    """Read a script through its syntax tree, however simple it is."""
    from tree_sitter import Parser

    walker = Walker(text)
    # A new parser each time: it is cheap, and its scanner keeps state from one text to the next.
    root = Parser(_grammar()).parse(walker.source).root_node
    script = walker.script
    if root.has_error:
        script.problems.append(Problem("unknown.syntax", "it is not a complete shell script"))
    walker.gap(0, root.start_byte)
    walker.sequence(root, "")
    walker.gap(root.end_byte, len(walker.source))
    script.constants = constants_of(script)
    return script
