"""The programs of a command line: the file that each part starts, and why not all may be known.

A question outside the sandbox names them, a grant holds for them, and they are looked for once more
before they start. What a line does to its own PATH, or a shell's function, is not followed: then
the programs count as not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from toolrest.policy.launch import Changed, Executables, Program
from toolrest.policy.shell.nested import SHELLS
from toolrest.policy.shell.words import wordset
from toolrest.policy.verdict.verdict import CommandClass

if TYPE_CHECKING:
    from toolrest.policy.launch import Launch
    from toolrest.policy.verdict.verdict import Judgement, Segment

_OWN_PATH = re.compile(r"\bPATH\b")
_QUOTES = re.compile(r"[\"'\\]")
_SOURCES = wordset("source . enable")
_OTHERS = wordset("sudo doas su runuser pkexec gosu su-exec chroot")
"""Programs that choose the environment of what they run."""
_BUILTINS = wordset(
    "cd declare eval exec exit export getopts kill let local popd pushd read readonly return set"
    " shift trap typeset ulimit umask unset wait"
)
_SETTERS = wordset("declare env export getopts local mapfile read readarray readonly typeset unset")
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
_LOGIN = re.compile(r"--login|--rcfile|--init-file|-[a-zA-Z]*[li][a-zA-Z]*")
_EMPTIES = {
    "env": re.compile(r"-|--ignore-environment|-[0v]*i[0v]*"),
    "command": re.compile(r"-[vV]*p[vV]*"),
}
"""Options that leave the PATH aside which the line has."""


class Programs(NamedTuple):
    """The parts' first words, each with its file, and why others may be started; else empty."""

    files: tuple[tuple[str, Program | None], ...]
    unknown: str = ""

    def words(self) -> str:
        """For the question: that they are not known, or which names mean a file of a project."""
        if self.unknown:
            return f"; which programs it starts is not known: {self.unknown}"
        found = {w: p.path for w, p in self.files if p is not None and p.writable and "/" not in w}
        return "".join(f"; {word} is {path}" for word, path in found.items())

    def notes(self) -> tuple[str, ...]:
        """The same for a person, in sentences."""
        if self.unknown:
            return (f"Nobody knows which programs it starts: {self.unknown}.",)
        return tuple(f"{part}." for part in self.words().split("; ") if part)

    def refuse_others(self, now: Programs) -> None:
        """Raise Changed, which names both, where a part would start another file now."""
        if now.unknown and not self.unknown:
            raise Changed(f"which programs it starts is not known any more: {now.unknown}")
        for (word, before), (_, after) in zip(self.files, now.files, strict=True):
            if before is None or after is None or before.path != after.path:
                if before != after:
                    raise Changed(f"{word} was {_named(before)} and is {_named(after)} now")
            elif before != after:
                raise Changed(f"{before.path} is another file now, or has another content")


def programs_of(judgement: Judgement, launch: Launch, cwd: str) -> Programs:
    """The programs of a line as they are found now. `cwd` is for parts whose folder is open."""
    found = Executables(launch.path or "", cwd, launch.suspects)
    parts = [segment for segment in judgement.segments if segment.argv]
    files = tuple((part.argv[0], found.program(part)) for part in parts)
    return Programs(files, next(_unknown(judgement, launch, found), ""))


def _unknown(judgement: Judgement, launch: Launch, found: Executables) -> Iterator[str]:
    if launch.path is None:
        yield "the login profile chooses them while it runs"
    words = (word for segment in judgement.segments for word in segment.argv)
    if any(map(_OWN_PATH.search, (_QUOTES.sub("", judgement.text), *words))):
        yield "the line has a PATH of its own"
    for segment in judgement.segments:
        if segment.kind == CommandClass.UNKNOWN or segment.mark(0):
            yield "a part of the line cannot be read"
        elif segment.rule == "shape.function":
            yield "the line defines functions"
        elif segment.argv:
            yield from _of_part(segment, launch, found)


def _of_part(segment: Segment, launch: Launch, found: Executables) -> Iterator[str]:
    name, words = segment.argv[0], segment.argv[1:]
    if f"BASH_FUNC_{name}%%" in launch.env:
        yield f"{name} is a function of the login profile"
    if name in _SOURCES:
        yield f"{name} reads a file that may change PATH"
    empties = _EMPTIES.get(segment.program)
    if segment.program in _OTHERS or (empties is not None and _has(words, empties)):
        yield f"{name} chooses the PATH of what it runs"
    if name in _SETTERS and any(map(_is_open, segment.argv, segment.marks)):
        yield f"{name} may set PATH"
    if segment.program in SHELLS and (segment.program == "zsh" or _has(words, _LOGIN)):
        yield f"{name} reads a profile of its own"
    missing = segment.kind > CommandClass.SAFE and name not in _BUILTINS
    if missing and found.program(segment) is None:
        yield f"{name} is not found"


def _is_open(word: str, mark: int) -> bool:
    """Whether only the shell knows the variable that a word names."""
    return bool(mark) and _ASSIGNS.match(word) is None


def _has(words: tuple[str, ...], option: re.Pattern[str]) -> bool:
    """Whether one of the options before the first other word is such a one."""
    for word in words:
        if option.fullmatch(word):
            return True
        if not word.startswith(("-", "+")) and "=" not in word:
            return False
    return False


def _named(program: Program | None) -> str:
    return "not found" if program is None else program.path
