"""Which variables of a script hold one literal value from their assignment on?

Only used to name a file or program that would otherwise be unknown, never to allow more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolrest.policy.shell.script import MAY_BE_EMPTY, VARIABLE, Script
from toolrest.policy.shell.words import wordset

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
