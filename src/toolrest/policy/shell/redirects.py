"""Redirections and here-documents of a syntax tree, read as a shell would read them.

The grammar takes `E;` for the delimiter of `<<E; ls`, and a line for the document's last that to
a shell continues the one before. So where a document begins and ends is worked out once more from
the text alone; a document that is not so plain is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from toolrest.policy.shell.script import UNREADABLE, Redirect, RedirectKind, Word

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


class Tail(Struct):
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


class SourceText(Struct, frozen=True):
    """Access to the text of the tree, and the callback for constructs that are not understood."""

    cut: Callable[[int, int], str]
    gap: Gap
    problem: Callable[[str, str], None]


def read_redirect(node: Node, words: WordReader, source: SourceText) -> Tail:
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

    return read_document(node, words, source)


def _file(node: Node, words: WordReader, source: SourceText) -> Tail:
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


_DELIMITER = re.compile(
    r"(?:'([^'\\$`()\n]+)'|\"([^\"\\$`()\n]+)\"|\\?([A-Za-z0-9_.+:,@%/-]+))(?=[\s;&|<>()]|\Z)"
)
_NUMBER = re.compile(r"[\s;&|()]?[0-9]+")
_ESCAPE = re.compile(r"\\(?:\n|([$`\\]))")
_TABS = re.compile(r"^\t+", re.MULTILINE)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\n\t*\Z")


def read_document(node: Node, words: WordReader, source: SourceText) -> Tail:
    """`<<EOF`, the document's text, and what follows on the line of the opening."""
    tail = Tail()
    quoted, tabs, body, mark, line = False, False, "", 0, []
    for child in node.children:
        kind = child.type
        if kind == "<<-":
            tabs = True
        elif kind == "heredoc_start":
            opening = source.cut(child.start_byte, child.end_byte)
            quoted = any(quote in opening for quote in "'\"\\")
        elif kind == "heredoc_body":
            body = source.cut(child.start_byte, child.end_byte)
            mark |= 0 if quoted else words.expansions(child)
        elif kind == "ERROR":
            mark |= UNREADABLE
        elif kind not in ("heredoc_end", "file_descriptor", "comment", "<<"):
            line.append(child)
    _read_line(line, tail, words, source)
    if tabs:
        body = _TABS.sub("", body)
    if not quoted and not mark and "\\" in body:
        body = _ESCAPE.sub(lambda match: match[1] or "", body)
    if not _is_plain(node, source, quoted, tabs):
        source.problem("unknown.document", "where a here-document ends is not understood")
    tail.redirects.append(Redirect("document", "<<", body, mark))
    return tail


def _read_line(line: list[Node], tail: Tail, words: WordReader, source: SourceText) -> None:
    """What stands behind the opening on its line: words, redirections, other commands."""
    joint = ""
    for child in line:
        kind = child.type
        if kind.endswith("_redirect"):
            tail.add(read_redirect(child, words, source))
        elif kind == "pipeline":
            tail.following += [("|", part) for part in child.named_children]
        elif kind in ("&&", "||"):
            joint = kind
        elif joint:
            tail.following.append((joint, child))
            joint = ""
        elif child.is_named:
            tail.words.append(words.read(child))


def _is_plain(node: Node, source: SourceText, quoted: bool, tabs: bool) -> bool:
    """True when its opening stands alone on a line and it ends where a shell ends it."""
    parts = {child.type: child for child in node.children}
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    number = parts.get("file_descriptor")
    if number is not None and not _NUMBER.fullmatch(
        source.cut(max(0, number.start_byte - 1), number.end_byte)
    ):
        # Of `-r1<<E` the grammar takes the whole word for a descriptor.
        return False
    if start is None or end is None or start.end_byte >= end.start_byte:
        return False
    opening = source.cut(start.start_byte, end.start_byte)
    match = _DELIMITER.match(opening)
    if match is None or match.end() != start.end_byte - start.start_byte:
        return False
    line, _, document = opening.partition("\n")
    newline = start.start_byte + len(line)
    last = [c for c in node.children if c.type not in ("heredoc_body", "heredoc_end")][-1].end_byte
    if last > newline or source.cut(last, newline).strip(" \t") or "<<" in line.replace("<<<", ""):
        return False
    delimiter = match[match.lastindex or 0]
    closing = source.cut(end.start_byte, end.end_byte + 1).removesuffix("\n")
    return closing == delimiter and _ends_before(document, delimiter, quoted, tabs)


def _ends_before(document: str, delimiter: str, quoted: bool, tabs: bool) -> bool:
    """True when the line after this text is a shell's first that is the delimiter alone."""
    *lines, before = document.split("\n")
    if before and not (tabs and not before.strip("\t")):
        return False
    if not quoted and _CONTINUED.search(document):
        return False
    return not any((line.lstrip("\t") if tabs else line) == delimiter for line in lines)
