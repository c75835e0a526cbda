"""Walks a bash syntax tree and writes down its commands.

The grammar is generous and at times skips what it cannot place, so nothing is taken on trust:
between two pieces of the tree only blanks may stand, every kind of node has to be known here,
and bare words are read again character by character. Whatever fails becomes a `UnreadPart`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolrest.policy.shell.budget import ParseBudget
from toolrest.policy.shell.redirects import SourceText, Tail, read_redirect
from toolrest.policy.shell.script import (
    UNREADABLE,
    Assignment,
    Redirect,
    Script,
    Simple,
    UnreadPart,
    Word,
)
from toolrest.policy.shell.word_nodes import WordReader
from toolrest.policy.shell.words import KEYWORDS, assigns, quick_argv

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 60

_FOREIGN = re.compile(r"[^\x00-\x7f]")
_BLANK = re.compile(r"(?:[ \t\n]|\\\n)*")
_INLINE = re.compile(r"(?:[ \t]|\\\n)*")
_JOINED = re.compile(r"(?:\\\n)+")
_BRACKETS = frozenset(("(", ")", "{", "}", "$(", "`", "<(", ">(", "\n", ";"))
_OPEN_ENDED = frozenset(("list", "pipeline", "negated_command"))


class CommandWalker:
    """Commands, lists, pipelines, redirections; the rest is in `shell_compound`."""

    def __init__(self, text: str, budget: ParseBudget) -> None:
        # The grammar's scanner reads beyond its tables at letters that are not ASCII. To a shell
        # they are letters like any other, so it is shown an `x` for each.
        self.source = _FOREIGN.sub("x", text).encode()
        self._text = text
        self.script = Script()
        self._budget = budget
        self._depth = 0
        self._group = 0
        self._upstream = -1
        self._looped = False
        self._backgrounds = 0
        self._tails: dict[int, Tail] = {}
        self._source = SourceText(self.slice, self.gap, self.problem)
        self._words = WordReader(self.slice, self.joins, self._substitution, self.problem, budget)
        self._kinds: dict[str, Callable[[Node, str], None]] = {
            "command": self._command,
            "list": self._list,
            "pipeline": self._pipeline,
            "redirected_statement": self._redirected,
            "file_redirect": self._lone_redirect,
            "negated_command": self._negated,
        }

    def slice(self, start: int, end: int) -> str:
        """The text between two offsets."""
        return self._text[start:end]

    def problem(self, rule: str, why: str) -> None:
        """Note that something is not understood."""
        self._budget.step(1)
        self.script.problems.append(UnreadPart(rule, why))

    def gap(self, start: int, end: int, *, inline: bool = False) -> None:
        """Check that blanks and nothing else stand between two pieces.

        Inside a command (`inline`) a newline is no blank. A continued line is none either: to a
        shell the pieces before and behind it touch.
        """
        text = self.slice(start, end)
        if _JOINED.fullmatch(text) or not (_INLINE if inline else _BLANK).fullmatch(text):
            self.problem("unknown.skipped", f"the parser cannot place {text.strip()!r}")

    def joins(self, start: int, end: int) -> bool:
        """True when nothing but continued lines stand between two pieces of one word."""
        return _JOINED.fullmatch(self.slice(start, end)) is not None

    def sequence(self, node: Node, op: str) -> None:
        """Commands one after the other: a script, a group, a substitution's body."""
        position = before = node.start_byte
        children = node.children
        self._budget.step(len(children))
        for child in children:
            start, kind = child.start_byte, child.type
            if start != position:
                self.gap(position, start)
            position = child.end_byte
            if kind == "comment":
                self._comment(child)
            elif child.is_named:
                if before != node.start_byte and "\n" not in self.slice(before, start):
                    self.problem("unknown.syntax", "two commands stand side by side")
                if self._text[max(0, start - 1) : start + 1] == ";&":
                    self.problem("unknown.syntax", "`;&` is out of place")
                self._statement(child, op)
                op, before = ";", position
            else:
                op, before = self._separator(kind, op), node.start_byte
        if position != node.end_byte:
            self.gap(position, node.end_byte)

    def _separator(self, kind: str, op: str) -> str:
        if kind == "&":
            self._in_background()
            return "&"
        if kind not in _BRACKETS:
            self.problem("unknown.syntax", f"`{kind}` is out of place")
        return op

    def _comment(self, node: Node) -> None:
        """Make sure that it is one: a `#` that continues a word hides nothing."""
        start = node.start_byte
        while self._text[max(start - 2, 0) : start] == "\\\n":
            start -= 2
        if start and self._text[start - 1] not in " \t\n;&|()":
            self.problem("unknown.syntax", "`#` stands inside a word")

    def _in_background(self) -> None:
        self._backgrounds += 1
        self.script.constructs.add("background")

    def _statement(self, node: Node, op: str) -> None:
        kind = node.type
        if kind == "comment":
            self._comment(node)
            return
        handler = self._kinds.get(kind)
        if handler is None:
            self.problem("unknown.syntax", f"a {kind.replace('_', ' ')} is not understood")
            return
        if self._depth >= MAX_DEPTH:
            self.script.too_big = f"it nests more than {MAX_DEPTH} levels deep"
            return
        self._budget.step(7)
        self._depth += 1
        handler(node, op)
        self._depth -= 1

    def _add(self, argv: tuple[str, ...], op: str, marks: tuple[int, ...] = ()) -> Simple:
        if argv and argv[0] in KEYWORDS:
            # To the grammar a command of that name; to a shell the beginning of something else.
            self.problem("unknown.syntax", f"`{argv[0]}` is out of place")
            argv, marks = argv[1:], marks[1:]
        elif argv and (assigns(argv[0]) or argv[0].isdecimal()):
            # In places the grammar takes an assignment or a descriptor for the program.
            self.problem("unknown.program", f"{argv[0]!r} stands where a program should")
        simple = Simple(argv, marks, op, self._group)
        simple.upstream = self._upstream
        simple.looped = self._looped
        self.script.commands.append(simple)
        return simple

    def _enter(self) -> int:
        """Open a group; returns the one to come back to."""
        outer = self._group
        self.script.parents.append(outer)
        self._group = len(self.script.parents) - 1
        return outer

    # Statements

    def _command(self, node: Node, op: str) -> None:
        tail = self._tails.pop(node.id, None) if self._tails else None
        argv = quick_argv(self.slice(node.start_byte, node.end_byte)) if tail is None else None
        if argv is not None:
            self._add(argv, op)
        else:
            self._worded(node, op, tail or Tail())

    def _worded(self, node: Node, op: str, tail: Tail) -> None:
        """A command whose words need reading, with the redirections that follow it."""
        first = len(self.script.commands)
        words: list[Word] = []
        redirects: list[Redirect] = []
        assignments: list[Assignment] = []
        position, after_word = node.start_byte, False
        joined: int | None = None
        self._budget.step(2 * node.child_count)
        for child in node.children:
            kind, start = child.type, child.start_byte
            is_word = kind != "variable_assignment" and not kind.endswith("_redirect")
            joined = self._joined(position, start, after_word and is_word)
            position, after_word = child.end_byte, is_word
            if kind == "variable_assignment":
                assignments.append(self._assignment(child))
            elif not is_word:
                extra = self._tail(child)
                redirects += extra.redirects
                words += extra.words
            elif joined is not None:
                # The grammar cuts some words in two; to a shell they are one.
                last, word = words.pop(), self._words.read(child)
                words.append(Word(last.text + word.text, last.mark | word.mark | joined))
            else:
                words.append(self._words.read(child))
        if tail.takes_number and after_word and len(words) > 1:
            digits = node.children[-1]
            if self.slice(digits.start_byte, digits.end_byte).isdecimal():
                if joined is not None:
                    self.problem("unknown.redirect", "a redirection is not understood")
                words.pop()
        words += tail.words
        marks = tuple(word.mark for word in words)
        simple = self._add(tuple(word.text for word in words), op, marks if any(marks) else ())
        simple.redirects = (*redirects, *tail.redirects)
        simple.assignments = tuple(assignments)
        simple.substituted = (first, len(self.script.commands) - 1)

    def _joined(self, end: int, start: int, words: bool) -> int | None:
        """The mark that joining two pieces of a command adds; None where they stand apart."""
        if words and start == end:
            return UNREADABLE
        if words and self.joins(end, start):
            return 0
        if start != end:
            self.gap(end, start, inline=True)
        return None

    def _tail(self, node: Node) -> Tail:
        return read_redirect(node, self._words, self._source)

    def _redirected(self, node: Node, op: str) -> None:
        argv = quick_argv(self.slice(node.start_byte, node.end_byte))
        if argv is not None:
            self._add(argv, op)
            return
        first = len(self.script.commands)
        body, tail = self._parts(node)
        # `a && b >x` comes as the list with the redirection, but a shell gives it to `b`.
        last = body
        while last is not None and last.type in _OPEN_ENDED and last.named_child_count:
            last = last.named_children[-1]
        own = last is not None and last.type == "command"
        if last is not None and own:
            self._tails[last.id] = tail
        if body is not None:
            self._statement(body, op)
        if not own:
            if tail.words:
                self.problem("unknown.syntax", "words follow a redirected group")
            simple = self._add((), op if body is None else ";")
            simple.redirects = tuple(tail.redirects)
            simple.substituted = (first, len(self.script.commands) - 1)
        self._go_on(tail, first)

    def _parts(self, node: Node) -> tuple[Node | None, Tail]:
        """What is redirected, if anything, and where to."""
        body: Node | None = None
        before: Node | None = None
        tail = Tail()
        position = node.start_byte
        for child in node.children:
            gap = self.slice(position, child.start_byte)
            # The grammar drops a lone `-` in front of a here-document.
            if gap.strip() == "-" and child.type == "heredoc_redirect":
                tail.words.append(Word("-"))
            elif gap:
                self.gap(position, child.start_byte, inline=True)
            elif before is not None:
                self._touching(before, child, tail)
            position, before = child.end_byte, child
            if child.type.endswith("_redirect"):
                tail.add(self._tail(child))
            elif child.type == "comment":
                self._comment(child)
            else:
                body = child
        return body, tail

    def _touching(self, body: Node, redirect: Node, tail: Tail) -> None:
        """A redirection right behind a command: `a 2>x`, `(a)>x`, but not `{ a; }2>x`."""
        opening = self._text[redirect.start_byte : redirect.start_byte + 1]
        if opening.isdecimal() and self._text[body.end_byte - 1] not in ")":
            self.problem("unknown.redirect", "a redirection is not understood")
        # Behind a continued line the grammar takes the descriptor of `2>x` for a word.
        if opening not in ("<", ">"):
            return
        if not body.type.endswith("_redirect"):
            tail.takes_number = True
            return
        words = [c for c in body.children if c.is_named and c.type != "file_descriptor"]
        digits = self.slice(words[-1].start_byte, words[-1].end_byte) if words else ""
        if len(words) > 1 and tail.words and digits.isdecimal():
            tail.words.pop()

    def _lone_redirect(self, node: Node, op: str) -> None:
        """`$(<file)`: nothing but a redirection."""
        tail = self._tail(node)
        marks = tuple(word.mark for word in tail.words)
        simple = self._add(tuple(word.text for word in tail.words), op, marks if any(marks) else ())
        simple.redirects = tuple(tail.redirects)

    def _go_on(self, tail: Tail, first: int) -> None:
        """What stands behind a here-document's opening on the same line."""
        for op, node in tail.following:
            outer = self._upstream
            if op == "|" and outer < 0:
                self._upstream = first
            self._statement(node, op)
            self._upstream = outer

    def _list(self, node: Node, op: str) -> None:
        # Lists lean left, one level for each `&&`: unrolled, so that length is not depth.
        rest: list[tuple[str, Node]] = []
        while node.type == "list":
            parts = [child for child in node.children if child.type != "comment"]
            if len(parts) != 3:
                self.problem("unknown.syntax", "a list is not understood")
                return
            left, token, right = parts
            if node.child_count == 3:
                self.gap(left.end_byte, token.start_byte, inline=True)
                self.gap(token.end_byte, right.start_byte)
            else:
                self.script.constructs.add("comment")
                for child in node.children:
                    if child.type == "comment":
                        self._comment(child)
            rest.append((token.type, right))
            node = left
        self._statement(node, op)
        for joint, right in reversed(rest):
            self._statement(right, joint)

    def _pipeline(self, node: Node, op: str) -> None:
        outer, outer_group = self._upstream, self._enter()
        first = len(self.script.commands)
        position = node.start_byte
        for child in node.children:
            kind = child.type
            if child.start_byte != position:
                self.gap(position, child.start_byte, inline=kind in ("|", "|&"))
            position = child.end_byte
            if kind in ("|", "|&"):
                self._upstream = first if outer < 0 else outer
                op = "|"
            elif kind == "command":
                self._command(child, op)
            else:
                self._statement(child, op)
        self._upstream, self._group = outer, outer_group

    def _negated(self, node: Node, op: str) -> None:
        for child in node.children:
            if child.is_named:
                self._statement(child, op)

    def _substitution(self, node: Node) -> None:
        """The body of `$( )`, backticks, `<( )` and `>( )`."""
        if self._depth >= MAX_DEPTH:
            self.script.too_big = f"it nests more than {MAX_DEPTH} levels deep"
            return
        self._depth += 1
        upstream, self._upstream = self._upstream, -1
        outer = self._enter()
        self.sequence(node, "")
        self._group, self._upstream = outer, upstream
        self._depth -= 1

    def _assignment(self, node: Node) -> Assignment:
        name = self.slice(node.start_byte, node.end_byte).partition("=")[0]
        value = node.child_by_field_name("value")
        if node.children[0].type == "subscript":
            self._words.expansions(node.children[0])
        if value is None:
            return Assignment(name, "")
        if self._text[value.start_byte - 1 : value.start_byte] != "=":
            # Of `X=`, a continued line and a command the grammar makes one assignment.
            self.problem("unknown.word", "where an assignment ends is not understood")
        if value.type == "array":
            for child in value.named_children:
                self._words.read(child)
            return Assignment(name, self.slice(value.start_byte, value.end_byte), 1)
        word = self._words.read(value)
        return Assignment(name, word.text, word.mark)
