"""Working folders of a script's commands, and the paths and hosts that their words name.

Purely by name: nothing is looked up. Symbolic links are for the path policy and the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.policy.paths.names import inside
from toolrest.policy.shell.constants import resolve
from toolrest.policy.shell.script import MAY_BE_EMPTY, TILDE, VARIABLE, Script, Simple

MAX_CWDS = 8


class WorkingDirs(Struct):
    """The working folders that are possible at a command, and what surrounds them.

    No working folder at all means that it is unknown. `roots` may be written to.
    """

    cwds: tuple[str, ...]
    roots: tuple[str, ...]
    home: str
    start: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def paths(self, text: str, mark: int = 0) -> tuple[str, ...]:
        """The absolute paths that a word may name; empty when that cannot be told."""
        if mark:
            known = self._known(text, mark)
            if known is None:
                return ()
            text = known
        if text.startswith("/"):
            return (_normal(text),)
        return tuple(_normal(f"{cwd}/{text}") for cwd in self.cwds)

    def _known(self, text: str, mark: int) -> str | None:
        if mark == TILDE and self.home and (text == "~" or text.startswith("~/")):
            return self.home + text[1:]
        if mark & ~MAY_BE_EMPTY == VARIABLE:
            return resolve(text, mark, self.variables)
        return None

    def word(self, text: str, mark: int) -> str | None:
        """A word's value, if it is literal or made of variables whose value is known."""
        return text if not mark else self._known(text, mark)

    def writable(self, path: str) -> bool:
        """True beneath a root or at it."""
        return any(inside(path, root) for root in self.roots)

    def moved(self, cwds: tuple[str, ...]) -> WorkingDirs:
        """The same surroundings with other working folders."""
        return replace(self, cwds=cwds if len(cwds) <= MAX_CWDS else ())


def _normal(path: str) -> str:
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path


def variables_of(script: Script, cwd: str, home: str) -> dict[str, str]:
    """Variables that are known from the beginning: HOME, and PWD where nothing changes it."""
    known: dict[str, str] = {}
    if home and not _sets(script, "HOME"):
        known["HOME"] = home
    if not any(simple.argv[:1] in (("cd",), ("pushd",), ("popd",)) for simple in script.commands):
        known.setdefault("PWD", cwd)
    return known


def _sets(script: Script, name: str) -> bool:
    return "declaration" in script.constructs or any(
        name == assignment.name for simple in script.commands for assignment in simple.assignments
    )


class CdTracker:
    """Follows `cd` through the commands of a script.

    `cd x && y` surely happens in x; after `cd x; y` both folders are possible, because the
    first may have failed. Leaving the group of a `cd` brings the folder before it back. A `cd`
    in a loop or function could happen any number of times: from then on nothing is known.
    """

    def __init__(self, script: Script, place: WorkingDirs) -> None:
        self._script = script
        self._wild = any(
            simple.looped and simple.argv[:1] in (("cd",), ("pushd",), ("popd",))
            for simple in script.commands
        )
        self.place = place.moved(()) if self._wild else place
        self._fallback: tuple[str, ...] = ()
        self._group = 0
        self._moved = False

    def at(self, simple: Simple) -> WorkingDirs:
        """The place of the next command in order."""
        if self._moved and not self._still_there(simple):
            self.place = self.place.moved(
                tuple(dict.fromkeys(self.place.cwds + self._fallback))
                if self.place.cwds and self._fallback
                else ()
            )
            self._moved = False
        if simple.argv[:1] in (("cd",), ("pushd",), ("popd",)):
            here = self.place
            self._go(simple)
            return here
        return self.place

    def _go(self, simple: Simple) -> None:
        if self._wild:
            return
        before = self.place.cwds
        operands = [i for i in range(1, len(simple.argv)) if simple.argv[i] not in ("--", "-P")]
        targets: tuple[str, ...] = ()
        if simple.argv[0] == "cd" and not operands:
            targets = (self.place.home,) if self.place.home else ()
        elif simple.argv[0] != "popd" and len(operands) == 1:
            text, mark = simple.argv[operands[0]], simple.mark(operands[0])
            targets = () if text.startswith("-") else self.place.paths(text, mark)
        self._fallback = tuple(dict.fromkeys(before + (self._fallback if self._moved else ())))
        self.place = self.place.moved(targets)
        self._group, self._moved = simple.group, True

    def _still_there(self, simple: Simple) -> bool:
        if simple.op == "|" and simple.group == self._group:
            # Stages of one pipeline do not share a folder.
            return False
        return simple.op in ("&&", "|") and self._within(simple.group)

    def _within(self, group: int) -> bool:
        while group and group != self._group:
            group = self._script.parents[group]
        return group == self._group


class Touch(Struct):
    """Absolute paths and host names; `sure` when that is all the command does."""

    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    connects: list[str] = field(default_factory=list)
    sure: bool = False


def paths_of(simple: Simple, index: int, place: WorkingDirs, touch: Touch, into: list[str]) -> None:
    """Add the paths that a word names; a word that names none leaves the touch unsure."""
    paths = place.paths(simple.argv[index], simple.mark(index))
    if not paths:
        touch.sure = False
    into.extend(paths)
