"""Reads the words of a syntax tree: value, mark, and the substitutions inside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolrest.policy.shell.budget import ParseBudget
from toolrest.policy.shell.script import (
    BRACE,
    GLOB,
    MAY_BE_EMPTY,
    SUBSTITUTION,
    UNREADABLE,
    VARIABLE,
    Word,
)
from toolrest.policy.shell.words import bare, double_quoted, mark_of

if TYPE_CHECKING:
    from tree_sitter import Node

_FAR = 1 << 20

_BODIES = frozenset(("command_substitution", "process_substitution"))
_MARKS = {
    "simple_expansion": VARIABLE,
    "expansion": VARIABLE,
    "arithmetic_expansion": VARIABLE | UNREADABLE,
    "command_substitution": SUBSTITUTION,
    "process_substitution": SUBSTITUTION,
    "brace_expression": BRACE,
    "extglob_pattern": GLOB,
    "regex": GLOB,
    "ansi_c_string": UNREADABLE,
    "translated_string": UNREADABLE,
    "subscript": UNREADABLE,
    "$": UNREADABLE,
}
_MAY_VANISH = frozenset(("simple_expansion", "expansion", "command_substitution"))
_OPENS = re.compile(r"(?<!\\)(?:\\\\)*(`|\$\(\(|\$\(|\$\{|\$\[)")
_OPENED = {"expansion": ("${",), "arithmetic_expansion": ("$((", "$[")}
_DOUBTED = frozenset(("simple_expansion", "expansion", "ansi_c_string"))
_REREAD = re.compile(r"\\[`$\\\"]")
_VARIABLE = re.compile(r"\s*\$(?:\w+|[*@#?$!-])")
_EXPANDS = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[A-Za-z0-9_({*@#?$!-])")


class WordReader:
    """Turns word nodes into words; substitutions go to `descend` as they are met."""

    def __init__(
        self,
        cut: Callable[[int, int], str],
        joins: Callable[[int, int], bool],
        descend: Callable[[Node], None],
        problem: Callable[[str, str], None],
        budget: ParseBudget,
    ) -> None:
        self._cut = cut
        self._joins = joins
        self._descend = descend
        self._problem = problem
        self._budget = budget

    def read(self, node: Node) -> Word:
        """The word that this node spells."""
        value, skeleton, mark = self._piece(node)
        if mark & (VARIABLE | SUBSTITUTION) and _vanishes(node):
            mark |= MAY_BE_EMPTY
        return Word(value, mark | mark_of(skeleton))

    def expansions(self, node: Node) -> int:
        """Walk every substitution beneath a node; the marks of all expansions found."""
        mark = 0
        known: list[Node] = [node] if node.type in _OPENED else []
        pending = [(child, bool(known)) for child in reversed(node.children)]
        while pending:
            child, within = pending.pop()
            self._budget.step(1)
            kind = child.type
            mark |= _MARKS.get(kind, 0) if kind != "$" else 0
            if kind == "@" and self._cut(child.end_byte, child.end_byte + 1) == "P":
                self._problem("unknown.word", "a variable is read as a prompt")
            if kind in _DOUBTED:
                self._doubted(child)
            if kind in _BODIES:
                self._body(child)
                known.append(child)
            elif kind in ("raw_string", "ansi_c_string") and not within:
                known.append(child)
            else:
                if kind in _OPENED:
                    known.append(child)
                    within = True
                pending += [(part, within) for part in reversed(child.children)]
        if "$" in (text := self._cut(node.start_byte, node.end_byte)) or "`" in text:
            self._all_known(node, known)
        return mark

    def _all_known(self, node: Node, known: list[Node]) -> None:
        """Make sure that no expansion is hidden in what the grammar takes for plain text."""
        position, rest, opened = node.start_byte, "", {"${": 0, "$((": 0, "$[": 0}
        for child in known:
            if child.type in _OPENED:
                opening = self._cut(child.start_byte, child.end_byte).lstrip()
                for token in _OPENED[child.type]:
                    opened[token] += opening.startswith(token)
            elif child.start_byte >= position:
                rest += self._cut(position, child.start_byte) + "x"
                position = child.end_byte
        rest += self._cut(position, node.end_byte)
        for token in _OPENS.findall(rest):
            opened[token] = opened.get(token, 0) - 1
        if any(left < 0 for left in opened.values()):
            self._problem("unknown.word", "an expansion inside a text is not understood")

    def _doubted(self, node: Node) -> None:
        """Note what a shell may read otherwise than the grammar does."""
        text = self._cut(node.start_byte, node.end_byte)
        if node.type == "simple_expansion" and not _VARIABLE.fullmatch(text):
            # To the grammar `$ x` is an expansion in some places; to a shell it is two words.
            self._problem("unknown.word", "a lone `$` is not understood")
        if node.type == "expansion" and ("<(" in text or ">(" in text):
            self._problem("unknown.word", "a process inside an expansion is not understood")
        if node.type != "ansi_c_string" or "\\'" not in text:
            return
        # A shell without such strings ends this one there and goes on with the rest.
        rest = text.partition("\\'")[2][:-1]
        if set('"#\n') & set(rest) or "'" in self._cut(node.end_byte, node.end_byte + _FAR):
            self._problem("unknown.word", "where a text ends differs from shell to shell")

    def _body(self, node: Node) -> None:
        text = self._cut(node.start_byte, node.end_byte).strip()
        if text[:1] == "`" and ("`" in text[1:-1] or _REREAD.search(text)):
            # To a shell the next backtick ends it, quoted or not, and before it reads what stands
            # there it removes backslashes.
            self._problem("unknown.word", "what stands between backticks is not understood")
        self._descend(node)

    def _piece(self, node: Node) -> tuple[str, str, int]:
        """Value, skeleton (quoted characters as `x`) and mark of one piece of a word."""
        kind = node.type
        if kind == "command_name" and node.child_count == 1:
            node = node.children[0]
            kind = node.type
        text = self._cut(node.start_byte, node.end_byte)
        if kind == "word" or (kind == "number" and not node.child_count):
            if "\n" in text.replace("\\\n", ""):
                self._problem("unknown.word", "a word goes over the end of its line")
            return bare(text)
        if kind == "raw_string":
            return text[1:-1], "x", 0
        if kind == "string":
            return self._string(node, text)
        if kind == "concatenation":
            return self._concatenation(node)
        if kind in _BODIES:
            self._body(node)
            return text, "x", SUBSTITUTION
        if kind in _DOUBTED:
            self._doubted(node)
        mark = _MARKS.get(kind)
        if mark is None:
            self._problem("unknown.word", f"{text!r} is not understood as a word")
            mark = UNREADABLE
        return text, "x", mark | self.expansions(node)

    def _string(self, node: Node, text: str) -> tuple[str, str, int]:
        inner = text[1:-1]
        mark = self.expansions(node)
        if not mark and _EXPANDS.search(inner):
            self._problem("unknown.word", f"{text!r} is not understood as a word")
            mark = UNREADABLE
        if mark and "\\$" in inner:
            mark |= UNREADABLE
        return double_quoted(inner), "x", mark

    def _concatenation(self, node: Node) -> tuple[str, str, int]:
        values, skeletons, mark, dollars = "", "", 0, False
        position = node.start_byte
        self._budget.step(node.child_count // 4)
        for child in node.children:
            if child.start_byte != position and not self._joins(position, child.start_byte):
                self._problem("unknown.skipped", "a word has a hole")
                mark |= UNREADABLE
            position = child.end_byte
            value, skeleton, found = self._piece(child)
            dollars = dollars or (not found and "$" in value)
            values += value
            skeletons += skeleton
            mark |= found
        # A quoted `$` beside a real one: the value alone no longer says which is which.
        return values, skeletons, mark | (UNREADABLE if mark and dollars else 0)


def _vanishes(node: Node) -> bool:
    if node.type in ("command_name", "concatenation"):
        return all(map(_vanishes, node.children))
    return node.type in _MAY_VANISH
