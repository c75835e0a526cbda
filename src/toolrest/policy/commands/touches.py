"""Files and hosts that a command touches, as far as its words name them.

`sure` means that the words name everything: the command does this and no more. Otherwise it
is an ordinary program, and what is found is a part of what it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from toolrest.policy.commands.network import NET_TOUCHES
from toolrest.policy.commands.options import read_options
from toolrest.policy.shell.place import Touch, WorkingDirs, paths_of
from toolrest.policy.shell.script import Simple
from toolrest.policy.shell.words import wordset

_NO_LONGS: frozenset[str] = frozenset()


def _operands(takes: str, longs: frozenset[str] = _NO_LONGS, skip: int = 0) -> TouchOf:
    """Commands that write every operand, past the first `skip`."""

    def touch(simple: Simple, place: WorkingDirs) -> Touch:
        options = read_options(simple.argv, takes, longs)
        found = Touch(sure=simple.literal)
        for index in options.operands[skip:]:
            paths_of(simple, index, place, found, found.writes)
        return found

    return touch


TouchOf = Callable[[Simple, WorkingDirs], Touch]


def _copy(*, moves: bool) -> TouchOf:
    def touch(simple: Simple, place: WorkingDirs) -> Touch:
        options = read_options(simple.argv, "tSgmoZ", wordset("--target-directory --suffix"))
        found = Touch(sure=simple.literal and not options.has("--strip-program", "s"))
        sources, target = options.operands[:-1], options.operands[-1:]
        into = options.value("t", "--target-directory")
        if into is not None:
            sources, target = options.operands, []
            found.writes += place.paths(into)
        for index in sources:
            paths_of(simple, index, place, found, found.writes if moves else found.reads)
        for index in target:
            paths_of(simple, index, place, found, found.writes)
        return found

    return touch


def _link(simple: Simple, place: WorkingDirs) -> Touch:
    options = read_options(simple.argv, "tS", wordset("--target-directory --suffix"))
    found = Touch(sure=simple.literal and len(options.operands) == 2)
    for index in options.operands[:1]:
        # Another name for a hidden file would show it.
        paths_of(simple, index, place, found, found.reads)
    for index in options.operands[1:]:
        paths_of(simple, index, place, found, found.writes)
    return found


# A substitution that neither runs nor writes by itself, or a deletion of lines.
_SED_PLAIN = re.compile(
    r"(?:\d+|\$|/[^/]*/)?(?:,(?:\d+|\$|/[^/]*/))?"
    r"(?:d|p|s([/|#,:@])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gIip0-9]*)"
)


def _sed(simple: Simple, place: WorkingDirs) -> Touch | None:
    options = read_options(simple.argv, "efl", wordset("--expression --file --line-length"))
    if not options.has("i", "--in-place"):
        return None
    scripts = options.values.get("e", []) + options.values.get("--expression", [])
    files = options.operands
    if not scripts and not options.has("f", "--file"):
        scripts, files = [simple.argv[index] for index in files[:1]], files[1:]
    plain = bool(scripts) and all(map(_SED_PLAIN.fullmatch, scripts))
    found = Touch(sure=simple.literal and plain and not options.has("f", "--file"))
    for index in files:
        paths_of(simple, index, place, found, found.writes)
    return found


def _dd(simple: Simple, place: WorkingDirs) -> Touch:
    found = Touch(sure=simple.literal)
    for index, word in enumerate(simple.argv):
        key, _, value = word.partition("=")
        if key in ("of", "if"):
            paths = place.paths(value, simple.mark(index))
            (found.writes if key == "of" else found.reads).extend(paths)
    return found


TOUCHES: dict[str, Callable[[Simple, WorkingDirs], Touch | None]] = {
    "touch": _operands("drt", wordset("--date --reference --time")),
    "mkdir": _operands("mZ", wordset("--mode")),
    "rmdir": _operands(""),
    "unlink": _operands(""),
    "rm": _operands(""),
    "tee": _operands(""),
    "mkfifo": _operands("m", wordset("--mode")),
    "truncate": _operands("sr", wordset("--size --reference")),
    "shred": _operands("ns", wordset("--iterations --size")),
    "chmod": _operands("", wordset("--reference"), skip=1),
    "chown": _operands("", wordset("--reference --from"), skip=1),
    "chgrp": _operands("", wordset("--reference"), skip=1),
    "cp": _copy(moves=False),
    "install": _copy(moves=False),
    "mv": _copy(moves=True),
    "ln": _link,
    "sed": _sed,
    "dd": _dd,
    **NET_TOUCHES,
}
