"""The answer to whether a call may run: allow, ask or deny."""

from __future__ import annotations

from enum import StrEnum


class Answer(StrEnum):
    """The answer of rules, modes, hooks and settings to a call.

    The spellings sort by strictness, so the strictest of several answers is their `max`. Where
    a file spells it otherwise (Codex's `prompt` and `forbidden`), its parser translates.
    """

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
