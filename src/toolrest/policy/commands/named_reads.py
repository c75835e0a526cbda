"""Files that a reader names in words which only the shell spells out, or among options of its own.

`cat ~/.ssh/id_rsa`, `head "$HOME/.netrc"`, `cat .env*`, `cat .env{,}`, `. ./.env`: such commands
are not proven to read and nothing else, and still it can be told what they read. Never to allow
more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from toolrest.policy.commands.read_only import Spec, read_by, spec_of
from toolrest.policy.shell.place import WorkingDirs
from toolrest.policy.shell.script import (
    BRACE,
    GLOB,
    MAY_BE_EMPTY,
    TILDE,
    UNREADABLE,
    VARIABLE,
    Simple,
)
from toolrest.policy.shell.special_commands import XARGS, find_starts
from toolrest.policy.shell.words import wordset

_PAGER = Spec()
_SPECS: dict[str, Spec] = {
    **dict.fromkeys(wordset("less more most bat batcat zcat zless bzcat xzcat zstdcat"), _PAGER),
    **dict.fromkeys(wordset("cp mv install ln gzip bzip2 xz zstd source ."), _PAGER),
    "xargs": Spec(
        takes=XARGS.takes,
        long_takes=XARGS.long_takes,
        skip=1_000_000,
        files=wordset("a --arg-file"),
    ),
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
    words: list[str] = []
    globbed: set[str] = set()
    for index, word in enumerate(simple.argv):
        spelled = _spelled(word, simple.mark(index), place)
        words += spelled
        if simple.mark(index) & GLOB:
            globbed.update(spelled)
    if name == "find":
        starts = find_starts(simple)
        found = tuple(
            path
            for index in starts
            for path in _spelled(simple.argv[index], simple.mark(index), place)
        )
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
            into = wild if word in globbed else paths
            into.update(dict.fromkeys(place.paths(word)))
    return Named(tuple(paths), tuple(wild))


def _spelled(text: str, mark: int, place: WorkingDirs) -> list[str]:
    """The words that a shell makes of one, as far as that can be told."""
    if not mark:
        return [text]
    if mark & UNREADABLE and "$'" in text:
        text, mark = _ANSI.sub(_unescaped, text), mark & ~UNREADABLE
    if mark & BRACE:
        return [
            spelled
            for word in islice(_braced(text), _MOST_WORDS)
            for spelled in _spelled(word, mark & ~BRACE, place)
        ]
    if mark & ~_KNOWN:
        return [_UNKNOWN]
    if mark & TILDE and (not place.home or (text != "~" and not text.startswith("~/"))):
        return [_UNKNOWN]
    text = place.home + text[1:] if mark & TILDE else text
    if not mark & VARIABLE:
        return [text]
    # A wildcard behind a variable is none of its value.
    folder, slash, name = text.rpartition("/") if mark & GLOB else (text, "", "")
    known = place.word(folder, VARIABLE)
    return [_UNKNOWN if known is None else known + slash + name]


_MOST_WORDS = 64
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([A-Za-z])\.\.([A-Za-z])")
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)


def _braced(text: str) -> Iterator[str]:
    """The words of `{a,b}` and `{a..c}`, the innermost first."""
    for found in _BRACES.finditer(text):
        span = _RANGE.fullmatch(found[1])
        pieces = found[1].split(",")
        if span is not None:
            first, last = sorted(map(ord, span.groups()))
            pieces = [chr(code) for code in range(first, last + 1)]
        if len(pieces) > 1 or span is not None:
            for piece in pieces:
                yield from _braced(text[: found.start()] + piece + text[found.end() :])
            return
    yield text


_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescaped(found: re.Match[str]) -> str:
    """The text of `$'…'`."""
    return _ESCAPE.sub(_character, found[1])


def _character(found: re.Match[str]) -> str:
    if found[5]:
        return _LETTERS.get(found[5], found[5] if found[5] in "\\'\"?" else _UNKNOWN)
    code = int(found[4], 8) if found[4] else int(found[1] or found[2] or found[3], 16)
    return chr(code) if code < 0x110000 else _UNKNOWN
