"""A shell script as policy reads it: simple commands, in order.

A script is flat. Each simple command remembers how it hangs together with the others: what
joins it to the one before, which group it stands in, whose output it reads and which commands
its own words run first. Compound commands leave their mark in `Script.constructs`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

GLOB: Final = 1
TILDE: Final = 2
BRACE: Final = 4
VARIABLE: Final = 8
SUBSTITUTION: Final = 16
UNREADABLE: Final = 32
MAY_BE_EMPTY: Final = 64
"""Bits of a word's mark: why the shell may not hand it over as it is spelled. 0 is literal.

`MAY_BE_EMPTY` is an unquoted expansion alone, which may come out as no word at all.
"""

FROM_SHELL: Final = TILDE | VARIABLE | SUBSTITUTION | UNREADABLE
"""The value comes from the shell's state; globs and braces only name files."""

RedirectKind: TypeAlias = Literal["read", "write", "both", "dup", "document", "string"]


class Word(NamedTuple):
    """A word after quote removal; what the shell would expand is left as it is written."""

    text: str
    mark: int = 0


class Redirect(NamedTuple):
    """`2>file`, `<<EOF`, `>&1`. For documents and strings `target` is the text itself."""

    kind: RedirectKind
    op: str
    target: str
    mark: int = 0


class Assignment(NamedTuple):
    """`NAME=value` before a command or alone."""

    name: str
    value: str
    mark: int = 0


class UnreadPart(NamedTuple):
    """A part of a script that is not understood, and why."""

    rule: str
    why: str


class Simple(Struct):
    """One simple command.

    `marks` is empty when every word is literal. `op` joins it to the command before: `&&`,
    `||`, `|`, `&`, `;` or, for the first of a script or a substitution, nothing. `upstream` is
    the index of the first command whose output may reach its standard input, or -1.
    `substituted` is the range of commands that its own words run.
    """

    argv: tuple[str, ...]
    marks: tuple[int, ...] = ()
    op: str = ""
    group: int = 0
    redirects: tuple[Redirect, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    upstream: int = -1
    substituted: tuple[int, int] = (0, 0)
    looped: bool = False

    @property
    def literal(self) -> bool:
        """True when the shell hands every word over as it is spelled."""
        return not self.marks

    def mark(self, index: int) -> int:
        """The mark of one word; 0 is literal."""
        return self.marks[index] if self.marks else 0


class Function(NamedTuple):
    """A function definition and the range of the commands in its body."""

    name: str
    start: int
    end: int
    background: bool


class Script(Struct):
    """A parsed script: its commands, what else was seen, and what was not understood.

    `shapes` names the constructs that rule out a run without asking. `constants` are variables
    that hold one literal value from their only assignment on. `parents` gives the group around
    each group.
    """

    commands: list[Simple] = field(default_factory=list)
    problems: list[UnreadPart] = field(default_factory=list)
    constructs: set[str] = field(default_factory=set)
    functions: list[Function] = field(default_factory=list)
    parents: list[int] = field(default_factory=lambda: [0])
    constants: dict[str, str] = field(default_factory=dict)
    too_big: str = ""
