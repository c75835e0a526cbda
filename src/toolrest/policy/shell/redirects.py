"""Reads redirections and here-documents of a syntax tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from toolrest.records import dataclass, field
from toolrest.policy.shell.script import Redirect, RedirectKind, Word

if TYPE_CHECKING:
    from tree_sitter import Node

    from toolrest.policy.shell.word_nodes import WordReader

_KINDS: dict[str, RedirectKind] = {
    "<": "read",
    ">": "write",
    ">>": "write",
    ">|": "write",
    "&>": "write",
    "&>>": "write",
    "<&": "dup",
    ">&": "dup",
    "<&-": "dup",
    ">&-": "dup",
}
_AFTER = frozenset(("", *" \t\n;&|<>()`"))
# `{name}>file`: the shell puts a descriptor's number into the variable.
_NAMED = re.compile(r"\{\w+(?:\[[^]\s]*\])?\}\Z")


@dataclass(slots=True)
class Tail:
    """What follows a command: redirections, the words after them, and a here-document's line.

    `takes_number`: the command's last word is really the descriptor of the first redirection.
    """

    redirects: list[Redirect] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    following: list[tuple[str, Node]] = field(default_factory=list)
    takes_number: bool = False

    def add(self, other: Tail) -> None:
        """Append another tail to this one."""
        self.redirects += other.redirects
        self.words += other.words
        self.following += other.following


class Gap(Protocol):
    """Checks that only blanks stand between two pieces."""

    def __call__(self, start: int, end: int, *, inline: bool = ...) -> None:
        """Complain if not."""


@dataclass(frozen=True, slots=True)
class Source:
    """How to look at the text of the tree, and whom to tell about what is not understood."""

    cut: Callable[[int, int], str]
    gap: Gap
    problem: Callable[[str, str], None]


def read_redirect(node: Node, words: WordReader, source: Source) -> Tail:
    """One redirection node, whichever kind it is."""
    position = node.start_byte
    word_before = False
    if source.cut(position - 1, position) == "}" and _NAMED.search(
        source.cut(max(0, position - 200), position)
    ):
        source.problem("unknown.redirect", "a redirection is not understood")
    for child in node.children:
        start, named = child.start_byte, child.is_named
        if child.type in ("heredoc_body", "heredoc_end"):
            continue
        if start != position:
            source.gap(position, start, inline=True)
        elif word_before and named:
            source.problem("unknown.word", "a word in a redirection is not understood")
        if not named and source.cut(start, child.end_byte) != child.type:
            # The grammar takes the `-rf` of `-rf<<E` for a part of the operator.
            source.problem("unknown.redirect", "a redirection is not understood")
        word_before = named and child.type not in ("file_descriptor", "heredoc_start")
        position = child.end_byte
    if node.type != "heredoc_redirect" and source.cut(position, position + 1) not in _AFTER:
        source.problem("unknown.word", "a word in a redirection is not understood")
    if node.type == "file_redirect":
        return _file(node, words, source)
    if node.type == "herestring_redirect":
        return _string(node, words)
    from toolrest.policy.shell._merge_shell_documents import read_document

    return read_document(node, words, source)


def _file(node: Node, words: WordReader, source: Source) -> Tail:
    tail, op, known = Tail(), "", True
    targets: list[Word] = []
    for child in node.children:
        if not child.is_named and child.type in _KINDS:
            op = child.type
        elif child.type == "file_descriptor":
            known = source.cut(child.start_byte, child.end_byte).isdecimal()
        else:
            targets.append(words.read(child))
    kind = _KINDS.get(op) if known else None
    if kind is None or (not targets and not op.endswith("-")):
        source.problem("unknown.redirect", "a redirection is not understood")
        return tail
    if op.endswith("-"):
        tail.redirects.append(Redirect("dup", op, "-"))
        tail.words += targets
        return tail
    target, mark = targets[0]
    if kind == "dup" and not (target.rstrip("-").isdecimal() or target == "-"):
        if op == "<&" or node.children[0].type == "file_descriptor":
            source.problem("unknown.redirect", "a redirection is not understood")
        # `>&file` is both streams into a file; `<&$fd` could be anything.
        kind = "write" if op == ">&" else "both"
    tail.redirects.append(Redirect(kind, op, target, mark))
    tail.words += targets[1:]
    if tail.words and op in ("&>", "&>>"):
        # To a shell without `&>` they are a command of their own.
        source.problem("unknown.redirect", f"words follow `{op}`")
    return tail


def _string(node: Node, words: WordReader) -> Tail:
    text, mark = words.read(node.children[-1])
    return Tail([Redirect("string", "<<<", text, mark)])
