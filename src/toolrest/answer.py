"""Allow, ask or deny: the one answer to "may this run?" in the whole tree."""

from __future__ import annotations

from enum import StrEnum


class Answer(StrEnum):
    """What rules, modes, hooks and settings say about a call.

    The spellings sort by strictness, so the strictest of several answers is their `max`. Where
    a file spells it otherwise (Codex's `prompt` and `forbidden`), its parser translates.
    """

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
