"""Parse shell text into a `Script`: the simplest without a syntax tree, others by bash's grammar.

Literal commands joined by `;`, `&&`, `||`, `|` and newlines need no grammar: outside quotes
there is no character in them that means anything else. Most command lines are such, and very
long ones would cost the grammar more than they are worth. Anything else is left to it.
"""

from __future__ import annotations

import re
from functools import cache
from time import thread_time
from typing import TYPE_CHECKING

from toolrest.policy.shell.budget import ParseBudget, TooMuchWork
from toolrest.policy.shell.compound import Walker
from toolrest.policy.shell.constants import constants_of
from toolrest.policy.shell.script import Script, Simple, UnreadPart
from toolrest.policy.shell.words import SIMPLE_COMMAND, split_simple, wordset

if TYPE_CHECKING:
    from tree_sitter import Language, Node


_STEP = re.compile(rf"{SIMPLE_COMMAND}[ \t]*(&&|\|\||\||;|\n|\Z)[ \t\n]*")
_RESERVED = wordset(
    "if then else elif fi do done case esac while until for select function time coproc in"
    " export declare typeset local readonly unset unsetenv"
)


def parse_simple(text: str) -> Script | None:
    """The script, if it is one of the simplest, else None."""
    position = len(text) - len(text.lstrip(" \t\n"))
    steps: list[tuple[tuple[str, ...], str]] = []
    op, joint = "", ";"
    step = _STEP.match
    while position < len(text):
        match = step(text, position)
        if match is None:
            return None
        command, joint = match.groups()
        argv = split_simple(command)
        if argv[0] in _RESERVED:
            return None
        steps.append((argv, op))
        op = joint if joint in ("&&", "||", "|") else ";"
        position = match.end()
    return None if joint in ("&&", "||", "|") else _script(steps)


def _script(steps: list[tuple[tuple[str, ...], str]]) -> Script:
    script = Script()
    commands, group, first = script.commands, 0, 0
    for index, (argv, op) in enumerate(steps):
        if op == "|":
            commands.append(Simple(argv, (), op, group, (), (), first))
            continue
        first, group = index, 0
        if index + 1 < len(steps) and steps[index + 1][1] == "|":
            script.parents.append(0)
            group = len(script.parents) - 1
        commands.append(Simple(argv, (), op, group))
    return script


MAX_LENGTH = 1 << 20

# A script of this size does not fit on a command line anyway.
MAX_PARSED = 1 << 18
MAX_COUNTS = (("|", 5_000), ("<<", 4_000), ("=(", 2_000))

_UNWATCHED = 1_000
_CHUNK = 64

_MOST_LINES = 64
_QUOTED = {
    "string",
    "string_content",
    "raw_string",
    "ansi_c_string",
    "heredoc_body",
    "heredoc_content",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@cache
def _grammar() -> Language:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def parse(text: str, budget: ParseBudget | None = None) -> Script:
    """Read a script. Never raises: what cannot be understood is listed in `problems`."""
    budget = budget or ParseBudget()
    if len(text) > MAX_LENGTH:
        return Script(too_big=f"it is longer than {MAX_LENGTH} characters")
    if _CONTROL.search(text):
        return Script(problems=[UnreadPart("unknown.characters", "it holds control characters")])
    try:
        script = parse_simple(text)
        if script is None:
            too_big = _too_big(text)
            script = Script(too_big=too_big) if too_big else parse_tree(text, budget)
        budget.commands -= len(script.commands)
        if budget.commands < 0:
            raise TooMuchWork
        return script
    except TooMuchWork:
        why = "it is too long or too tangled to be read"
        return Script(problems=[UnreadPart("unknown.budget", why)])
    except Exception as error:
        # A mistake of ours must not let anything through, nor end the session.
        why = f"reading it failed: {type(error).__name__}"
        return Script(problems=[UnreadPart("unknown.internal", why)])


def _too_big(text: str) -> str:
    if len(text) > MAX_PARSED:
        return f"it is longer than {MAX_PARSED} characters"
    for piece, limit in MAX_COUNTS:
        if text.count(piece) > limit:
            return f"it holds `{piece}` more than {limit} times"
    return ""


def _apart(text: str, budget: ParseBudget) -> str | None:
    r"""The text with a blank before each line that begins with a backslash; None if they are many.

    The grammar takes `\rm` at the beginning of a line for one more word of the line before. To a
    shell the blank changes nothing, but where it would be part of a quoted text it is left out.
    """
    source = text.encode()
    root = _tree(budget, source)
    inserted = 0
    at = source.find(b"\n\\")
    while at >= 0:
        if _ends_line(source, at, root):
            source = source[: at + 1] + b" " + source[at + 1 :]
            # Only with the lines before put right is it known what is quoted further on.
            root = _tree(budget, source)
            inserted += 1
            if inserted > _MOST_LINES:
                return None
        at = source.find(b"\n\\", at + 1)
    return source.decode()


def _ends_line(source: bytes, at: int, root: Node) -> bool:
    """Whether the newline there is one to a shell: not quoted, and not escaped but in a comment."""
    before = source[:at]
    if (len(before) - len(before.rstrip(b"\\"))) % 2:
        last = root.descendant_for_byte_range(at - 1, at)
        return last is not None and last.type == "comment"
    node = root.descendant_for_byte_range(at, at + 2)
    return node is None or node.type not in _QUOTED


def _tree(budget: ParseBudget, source: bytes) -> Node:
    """The root of the script's syntax tree; TooMuchWork where making it takes too long.

    On some broken input the time that the grammar takes grows with the square of the length.
    """
    from tree_sitter import Parser

    # A new parser each time: it is cheap, and its scanner keeps state from one text to the next.
    parser = Parser(_grammar())
    if len(source) <= _UNWATCHED:
        return parser.parse(source).root_node
    until = thread_time() + budget.seconds

    def read(offset: int, _point: object) -> bytes:
        # Past the limit the text is at its end: an exception would not stop the parser.
        return source[offset : offset + _CHUNK] if thread_time() < until else b""

    root = parser.parse(read).root_node
    budget.seconds = until - thread_time()
    if budget.seconds < 0:
        raise TooMuchWork
    return root


def parse_tree(text: str, budget: ParseBudget) -> Script:
    """Read a script through its syntax tree, however simple it is."""
    apart = _apart(text, budget) if "\n\\" in text else text
    if apart is None:
        why = f"more than {_MOST_LINES} lines begin with a backslash"
        return Script(problems=[UnreadPart("unknown.syntax", why)])
    walker = Walker(apart, budget)
    root = _tree(budget, walker.source)
    script = walker.script
    if root.has_error:
        script.problems.append(UnreadPart("unknown.syntax", "it is not a complete shell script"))
    if "$\\\n" in text:
        # To a shell the next line goes on with `(` or a name, also inside double quotes.
        script.problems.append(UnreadPart("unknown.syntax", "a line ends inside an expansion"))
    walker.gap(0, root.start_byte)
    walker.sequence(root, "")
    walker.gap(root.end_byte, len(walker.source))
    script.constants = constants_of(script)
    return script
