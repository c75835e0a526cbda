"""Walks what commands are put into: groups, loops, conditions, functions, declarations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolrest.policy.shell.budget import ParseBudget
from toolrest.policy.shell.script import Function, Word
from toolrest.policy.shell.walk import CommandWalker

if TYPE_CHECKING:
    from tree_sitter import Node

_SIMPLE_TEST = re.compile(
    r"(\[\[? -[bcdefghkLprsuwxzNSOG] [A-Za-z0-9_./:@%+,][A-Za-z0-9_./:@%+,-]* \]\]?)"
)
_COMPUTED = re.compile(r"'[^'\]]*\[[^']*(?:\$\(|`)|\[[^]\s]+\\[$`]")
_LOOPS = frozenset(("while_statement", "for_statement", "c_style_for_statement"))
_BLOCKS = {
    "if_statement": "if",
    "elif_clause": "if",
    "else_clause": "if",
    "while_statement": "loop",
    "for_statement": "loop",
    "c_style_for_statement": "loop",
    "do_group": "loop",
    "case_statement": "case",
    "case_item": "case",
}


class Walker(CommandWalker):
    """Walks one tree and fills one script."""

    def __init__(self, text: str, budget: ParseBudget) -> None:
        super().__init__(text, budget)
        self._kinds |= {
            "subshell": self._grouped,
            "compound_statement": self._compound,
            "function_definition": self._function,
            "variable_assignment": self._assigned,
            "variable_assignments": self._assigned,
            "declaration_command": self._declared,
            "unset_command": self._declared,
            "test_command": self._test,
            "ERROR": self._error,
            **dict.fromkeys(_BLOCKS, self._block),
        }

    def _grouped(self, node: Node, op: str) -> None:
        outer = self._enter()
        self._filled(node, op)
        self._group = outer

    def _compound(self, node: Node, op: str) -> None:
        if node.children[0].type == "((":
            self.script.constructs.add("arithmetic")
            self._words.expansions(node)
        else:
            self._filled(node, op)

    def _filled(self, node: Node, op: str) -> None:
        if not any(child.is_named and child.type != "comment" for child in node.children):
            self.problem("unknown.syntax", "a group is empty")
        self.sequence(node, op)

    def _block(self, node: Node, op: str) -> None:
        """Loops and conditions: every command inside counts, whether it will run or not."""
        self.script.constructs.add(_BLOCKS[node.type])
        looped = self._looped
        self._looped = looped or node.type in _LOOPS
        for child in node.children:
            kind = child.type
            if kind in self._kinds:
                self._statement(child, op)
                op = ";"
            elif kind == "&":
                self._in_background()
            elif kind.endswith("_expression"):
                self._words.expansions(child)
            elif kind == "comment":
                self._comment(child)
            elif child.is_named and kind != "variable_name":
                self._words.read(child)
        self._looped = looped

    def _function(self, node: Node, op: str) -> None:
        self.script.constructs.add("function")
        first, backgrounds = len(self.script.commands), self._backgrounds
        looped, self._looped = self._looped, True
        outer = self._enter()
        name = node.child_by_field_name("name")
        for child in node.children:
            if child.is_named and child != name:
                if child.type.endswith("_redirect"):
                    self._add((), ";").redirects = tuple(self._tail(child).redirects)
                else:
                    self._statement(child, op)
        self._group, self._looped = outer, looped
        self.script.functions.append(
            Function(
                "" if name is None else self.slice(name.start_byte, name.end_byte),
                first,
                len(self.script.commands),
                self._backgrounds > backgrounds,
            )
        )

    def _assigned(self, node: Node, op: str) -> None:
        first = len(self.script.commands)
        nodes = [node] if node.type == "variable_assignment" else node.named_children
        assignments = tuple(self._assignment(child) for child in nodes)
        simple = self._add((), op)
        simple.assignments = assignments
        simple.substituted = (first, len(self.script.commands) - 1)
        self.script.constructs.add("assignment")

    def _declared(self, node: Node, op: str) -> None:
        first = len(self.script.commands)
        words = [Word(node.children[0].type)]
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                name, value, mark = self._assignment(child)
                words.append(Word(f"{name}={value}", mark))
            elif child.type == "variable_name":
                words.append(Word(self.slice(child.start_byte, child.end_byte)))
            elif child.is_named:
                words.append(self._words.read(child))
        marks = tuple(word.mark for word in words)
        simple = self._add(tuple(word.text for word in words), op, marks if any(marks) else ())
        simple.substituted = (first, len(self.script.commands) - 1)
        self.script.constructs.add("declaration")

    def _test(self, node: Node, op: str) -> None:
        text = self.slice(node.start_byte, node.end_byte)
        if _SIMPLE_TEST.fullmatch(text):
            self._add(("test", *text.split()[1:-1]), op)
            return
        if _COMPUTED.search(text):
            self.problem("unknown.word", "a subscript may run commands")
        first = len(self.script.commands)
        self.script.constructs.add("test")
        self._words.expansions(node)
        self._add((), op).substituted = (first, len(self.script.commands) - 1)

    def _error(self, node: Node, op: str) -> None:
        """Broken anyway; still worth knowing what is in there."""
        for child in node.children:
            if child.type in self._kinds:
                self._statement(child, ";")
            elif child.is_named and child.child_count:
                self._words.expansions(child)
