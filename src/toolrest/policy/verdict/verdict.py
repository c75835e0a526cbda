"""The judgement of a command line: what each of its commands will do.

Each simple command gets one of six kinds, and the whole gets the strictest: adding a command
never lowers a verdict. Nothing here decides whether to ask; that also takes a mode, a sandbox
and the rules (`outcome`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from toolrest.policy.effects import Effects

if TYPE_CHECKING:
    from toolrest.policy.shell.script import Script


class CommandClass(IntEnum):
    """The class of a command; a greater one is stricter."""

    SAFE = 0
    TOUCHES = 1
    RUNS = 2
    UNKNOWN = 3
    DANGEROUS = 4
    REFUSED = 5

    @property
    def label(self) -> str:
        """The lower-case name, for people and JSON."""
        return self.name.lower()


class Segment(Struct):
    """One simple command of a command line, and what is known about it.

    `depth` counts the wrappers and nested scripts around it. `writes` are the command's own,
    `redirected` those that the shell opens for it; those in `wild` are read and have wildcards.
    Paths are absolute, by name only. `assigns` means that variables are set for it which may
    change what it does, `planted` that its name means a file that a tool can have written.
    """

    argv: tuple[str, ...]
    kind: CommandClass
    rule: str
    why: str = ""
    marks: tuple[int, ...] = ()
    depth: int = 0
    transparent: bool = False
    cwds: tuple[str, ...] = ()
    read_words: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    wild: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    redirected: tuple[str, ...] = ()
    connects: tuple[str, ...] = ()
    assigns: bool = False
    planted: bool = False

    def raise_to(self, kind: CommandClass, rule: str, why: str) -> None:
        """Make the segment at least this strict."""
        if kind > self.kind:
            self.kind, self.rule, self.why = kind, rule, why

    def mark(self, place: int) -> int:
        """What only the shell knows of a word; 0 for a literal one."""
        return self.marks[place] if self.marks else 0

    @property
    def literal(self) -> bool:
        """True when the shell hands every word over as it is spelled."""
        return not self.marks

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return self.argv[0].rpartition("/")[2] if self.argv else ""

    @property
    def needs_disarmed_git(self) -> bool:
        """True for a git command that only looks if repository programs are switched off."""
        return self.kind == CommandClass.SAFE and self.program == "git" and bool(self.read_words)


class Judgement(Struct):
    """The judgement of a command line: what it will do, segment by segment.

    `plain` means nothing but literal commands joined by operators. `argv` is the command as it
    was given; a script stands alone in it. `roots` may be written to.
    """

    argv: tuple[str, ...]
    segments: tuple[Segment, ...]
    plain: bool = True
    roots: tuple[str, ...] = ()
    is_script: bool = False
    scripts: Mapping[str, Script] = field(default_factory=dict)
    """Every script that was parsed on the way, by its text."""

    @property
    def worst(self) -> Segment | None:
        """The first of the strictest segments."""
        # Not kept: a segment may be raised after the first look, by a PATH hijack for one.
        return max(self.segments, key=lambda segment: segment.kind, default=None)

    @property
    def text(self) -> str:
        """The command as a person would type it."""
        return self.argv[0] if self.is_script else shlex.join(self.argv)

    @property
    def kind(self) -> CommandClass:
        """The strictest kind of all segments; doing nothing at all is safe."""
        worst = self.worst
        return CommandClass.SAFE if worst is None else worst.kind

    @property
    def needs_disarmed_git(self) -> bool:
        """True when the verdict holds only with git's configured programs switched off."""
        return any(segment.needs_disarmed_git for segment in self.segments)

    @property
    def git_folders(self) -> tuple[str, ...]:
        """The folders in which such git commands run, each with a configuration of its own."""
        found: dict[str, None] = {}
        for segment in self.segments:
            if segment.needs_disarmed_git:
                found.update(dict.fromkeys(segment.cwds))
        return tuple(found)

    def arm_git(self, why: str) -> None:
        """Git that was to only look may do more."""
        for segment in self.segments:
            if segment.needs_disarmed_git:
                segment.raise_to(CommandClass.RUNS, "runs.git", why)

    @property
    def reads(self) -> tuple[str, ...]:
        """Every path that is known to be read."""
        found: dict[str, None] = {}
        for segment in self.segments:
            found.update(dict.fromkeys(segment.reads))
            for word in segment.read_words:
                for cwd in segment.cwds:
                    found[os.path.normpath(os.path.join(cwd, word))] = None
        return tuple(found)

    @property
    def wild(self) -> tuple[str, ...]:
        """Every path with wildcards that is read."""
        return tuple(path for segment in self.segments for path in segment.wild)

    @property
    def writes(self) -> tuple[str, ...]:
        """Every path that is known to be written."""
        found: dict[str, None] = {}
        for segment in self.segments:
            found.update(dict.fromkeys(segment.writes + segment.redirected))
        return tuple(found)

    @property
    def connects(self) -> tuple[str, ...]:
        """Every host that is known to be contacted."""
        found: dict[str, None] = {}
        for segment in self.segments:
            found.update(dict.fromkeys(segment.connects))
        return tuple(found)

    def _runs(self) -> tuple[tuple[str, ...], ...]:
        """The argument vectors of programs, without those that other programs run in turn."""
        found: list[tuple[str, ...]] = []
        depth = -1
        for segment in self.segments:
            if depth >= 0 and segment.depth > depth:
                continue
            depth = -1
            if segment.kind >= CommandClass.RUNS and segment.argv:
                found.append(segment.argv)
                depth = segment.depth
        return tuple(dict.fromkeys(found))

    def effects(self) -> Effects:
        """The judgement as effects; only a wholly safe command line may run beside others."""
        worst = self.worst
        if worst is None or worst.kind == CommandClass.SAFE:
            return Effects(reads=self.reads)
        critical = worst.kind >= CommandClass.DANGEROUS
        writes, connects = self.writes, self.connects
        runs = self._runs()
        if not runs and (worst.kind >= CommandClass.RUNS or not (writes or connects)):
            # A loop, a condition or a document around commands that are safe by themselves.
            runs = (self.argv,)
        return Effects(
            reads=self.reads,
            writes=writes,
            runs=runs,
            connects=connects,
            exclusive=True,
            is_unknown=any(segment.kind == CommandClass.UNKNOWN for segment in self.segments),
            critical=f"{worst.rule}: {worst.why}" if critical else None,
        )
