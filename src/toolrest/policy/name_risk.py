"""The risk of a tool that declares no effects, by the whole words in its name.

A name is only a claim, so the strictest word wins, a name without any known word counts as
execute, and even a name that only mentions reading asks once.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from toolrest.policy.effects import Risk

EXECUTE = frozenset(("shell", "exec", "command", "run", "spawn", "stdin"))
WRITE = frozenset(("patch", "write", "edit", "create", "delete", "modify", "update"))
READ = frozenset(("read", "file", "list", "grep", "fetch", "get", "search", "find"))

# `readFile`, `read_file`, `HTTPGet`, `list-2`: letters in runs, split where the case turns.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SEPARATED = re.compile(r"[A-Za-z0-9_./: -]*")


class NameRisk(NamedTuple):
    """The risk that a name suggests, the words that suggest it, and whether to ask even so."""

    risk: Risk
    words: tuple[str, ...] = ()
    asks_once: bool = False


def name_risk(name: str) -> NameRisk:
    """Class a tool by its own name; the name of its server or namespace does not count."""
    own = re.split(r"/|__", name)[-1] if not name.endswith(("/", "__")) else name
    if not _SEPARATED.fullmatch(own):
        return NameRisk(Risk.EXECUTE)
    words = [word.lower() for word in _WORD.findall(own)]
    for risk, known in ((Risk.EXECUTE, EXECUTE), (Risk.WRITE, WRITE), (Risk.READ, READ)):
        hits = tuple(word for word in words if word in known)
        if hits:
            return NameRisk(risk, hits, asks_once=risk == Risk.READ)
    return NameRisk(Risk.EXECUTE)
