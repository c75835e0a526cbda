"""Files that a reader names in words which only the shell spells out, or among options of its own.

`cat ~/.ssh/id_rsa`, `head "$HOME/.netrc"`, `cat .env*`, `sed 's/a/b/' .env`: such commands are not
proven to read and nothing else, and still it can be told what they read. Never to allow more.
"""

from __future__ import annotations

from typing import NamedTuple

from toolrest.policy.commands.read_only import Spec, read_by, spec_of
from toolrest.policy.shell.place import WorkingDirs
from toolrest.policy.shell.script import GLOB, MAY_BE_EMPTY, TILDE, VARIABLE, Simple
from toolrest.policy.shell.special_commands import find_starts
from toolrest.policy.shell.words import wordset

_PAGER = Spec()
_SPECS: dict[str, Spec] = {
    **dict.fromkeys(wordset("less more most bat batcat zcat zless bzcat xzcat zstdcat"), _PAGER),
    **dict.fromkeys(wordset("cp mv install ln gzip bzip2 xz zstd"), _PAGER),
    "tar": Spec(takes="X", long_takes=wordset("--exclude --exclude-from")),
    **dict.fromkeys(wordset("awk gawk mawk nawk"), Spec(takes="Fvf", skip=1, instead="f")),
    "sed": Spec(
        takes="efl",
        long_takes=wordset("--expression --file --line-length"),
        skip=1,
        instead="ef",
    ),
}
_KNOWN = TILDE | VARIABLE | GLOB | MAY_BE_EMPTY
_UNKNOWN = "\0"
"""Stands for a word that cannot be told."""


class Named(NamedTuple):
    """Absolute paths; the `wild` ones have wildcards."""

    paths: tuple[str, ...] = ()
    wild: tuple[str, ...] = ()


def named_reads(simple: Simple, place: WorkingDirs) -> Named:
    """The paths that a reading program gets, as far as the words of its command line show them."""
    name = simple.argv[0].rpartition("/")[2]
    words = [_spelled(word, simple.mark(index), place) for index, word in enumerate(simple.argv)]
    if name == "find":
        found: tuple[str, ...] = tuple(words[index] for index in find_starts(simple))
    else:
        spec = _SPECS.get(name) or spec_of(name)
        if spec is None:
            return Named()
        lenient = spec._replace(flags=None, most=Spec().most, otherwise=())
        found = read_by(tuple(words), lenient) or ()
    paths: dict[str, None] = {}
    wild: dict[str, None] = {}
    for word in found:
        if word and _UNKNOWN not in word:
            into = wild if word in _globbed(simple, words) else paths
            into.update(dict.fromkeys(place.paths(word)))
    return Named(tuple(paths), tuple(wild))


def _spelled(text: str, mark: int, place: WorkingDirs) -> str:
    if not mark:
        return text
    if mark & ~_KNOWN:
        return _UNKNOWN
    if mark & TILDE and (not place.home or (text != "~" and not text.startswith("~/"))):
        return _UNKNOWN
    text = place.home + text[1:] if mark & TILDE else text
    if not mark & VARIABLE:
        return text
    # A wildcard behind a variable is none of its value.
    folder, slash, name = text.rpartition("/") if mark & GLOB else (text, "", "")
    known = place.word(folder, VARIABLE)
    return _UNKNOWN if known is None else known + slash + name


def _globbed(simple: Simple, words: list[str]) -> set[str]:
    return {word for index, word in enumerate(words) if simple.mark(index) & GLOB}
