"""Reads the simplest scripts without a syntax tree.

Literal commands joined by `;`, `&&`, `||`, `|` and newlines need no grammar: outside quotes
there is no character in them that means anything else. Most command lines are such, and very
long ones would cost the grammar more than they are worth. Anything else is left to it.
"""

from __future__ import annotations

import re

from toolrest.policy.shell.script import Script, Simple
from toolrest.policy.shell.words import SIMPLE_COMMAND, split_simple, wordset

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
