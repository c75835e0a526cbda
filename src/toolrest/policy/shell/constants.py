"""Variables of a script whose literal values are known, or at least possible.

Only used to name a file or program that would otherwise be unknown, or to see a danger; never to
allow more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, product

from msgspec.structs import replace

from toolrest.policy.shell.script import GLOB, MAY_BE_EMPTY, VARIABLE, Script, Simple
from toolrest.policy.shell.words import mark_of, wordset

_SETTERS = wordset(
    "eval source . read mapfile readarray getopts unset let printf export declare typeset local"
    " readonly trap coproc select"
)
_TEMPLATE = re.compile(r"(?:[A-Za-z0-9_./:@%+,=-]|\$\w+|\$\{\w+\})*")
_TEMPORARY = re.compile(r"\$\(mktemp(?: -d)?\)")
_SOLID = re.compile(r"[^\s*?\[\]]+")
_NAME = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def constants_of(script: Script) -> dict[str, str]:
    """Variables assigned once, at the top level, to a literal, with nothing else setting any."""
    found: dict[str, str] = {}
    if "assignment" not in script.constructs:
        return found
    if script.constructs & {"loop", "function", "arithmetic", "case"}:
        return found
    seen: set[str] = set()
    for simple in script.commands:
        if simple.argv:
            if simple.argv[0] in _SETTERS:
                return {}
            continue
        for name, value, mark in simple.assignments:
            if name in seen or not name.isidentifier():
                found.pop(name, None)
            elif not simple.group and simple.op in ("", ";"):
                found.update(_known(name, value, mark))
            seen.add(name)
    return found


def _known(name: str, value: str, mark: int) -> dict[str, str]:
    if not mark:
        return {name: value}
    return {name: "/tmp/mktemp"} if _TEMPORARY.fullmatch(value) else {}  # noqa: S108


def resolve(text: str, mark: int, values: Mapping[str, str]) -> str | None:
    """The value of a word that is made of plain text and known variables, else None."""
    if mark & ~(VARIABLE | MAY_BE_EMPTY) or not _TEMPLATE.fullmatch(text):
        return None
    known = True

    def value(match: re.Match[str]) -> str:
        nonlocal known
        name = match[1] or match[2]
        known = known and name in values
        return values.get(name, "")

    resolved = _NAME.sub(value, text)
    # Unquoted, a blank or a wildcard in the value would make other words of it.
    return resolved if known and _SOLID.fullmatch(resolved) else None


_MOST_VALUES = 16
_MOST_VARIANTS = 32
_SETS = re.compile(r"(\w+)=(.*)", re.DOTALL)


def possible_values(script: Script) -> dict[str, list[str]]:
    """Literal values that variables are given anywhere in the script, not all of every one."""
    found: dict[str, list[str]] = {}
    if not script.constructs & {"assignment", "declaration"}:
        return found
    for simple in script.commands:
        pairs = [(name, value) for name, value, mark in simple.assignments if not mark]
        if simple.argv[:1] and simple.argv[0] in _SETTERS:
            matches = (_SETS.fullmatch(word) for word in simple.argv[1:])
            pairs += [(match[1], match[2]) for match in matches if match is not None]
        for name, value in pairs:
            values = found.setdefault(name, [])
            if value not in values and len(values) < _MOST_VALUES:
                values.append(value)
    return found


def expanded(simple: Simple, values: Mapping[str, list[str]]) -> Iterator[Simple]:
    """The command as a shell may run it: variables replaced, and the text split into words."""
    names = [m[1] or m[2] for word in simple.argv for m in _NAME.finditer(word)]
    names = [name for name in dict.fromkeys(names) if name in values]
    if not names:
        return
    for chosen in islice(product(*(values[name] for name in names)), _MOST_VARIANTS):
        known = dict(zip(names, chosen, strict=True))
        argv: list[str] = []
        marks: list[int] = []
        for word, mark in zip(simple.argv, simple.marks, strict=True):
            text = _NAME.sub(lambda m: known.get(m[1] or m[2], m[0]), word)  # noqa: B023
            if not mark & VARIABLE or mark & ~(VARIABLE | MAY_BE_EMPTY) or _NAME.search(text):
                argv.append(word)
                marks.append(mark)
            else:
                argv += text.split()
                marks += [mark_of(part) & GLOB for part in text.split()]
        if argv:
            yield replace(simple, argv=tuple(argv), marks=tuple(marks) if any(marks) else ())
