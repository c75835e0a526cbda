"""Tokens that a piece of a stream leaves unfinished: redaction holds these back."""

from __future__ import annotations

import re
from functools import cache

from toolrest.config.secrets import IN_TOKENS, LEADS, TOKENS, may_begin, may_lead

_PARTS = frozenset(prefix[:size] for prefix in TOKENS for size in range(1, len(prefix) + 1))
_LEADING = frozenset(lead[:size] for lead in LEADS for size in range(1, len(lead)))
_LONGEST_PART = max(map(len, (*TOKENS, *LEADS)))
_KEY, _KEY_HEADER = "-----BEGIN ", 60
_LONGEST_TOKEN, _LONGEST_KEY = 8192, 20_000


def open_token(text: str, before: str = "") -> int:
    """Index of the earliest unfinished token at the end of the text."""
    length = hold = len(text)
    for size in range(min(_LONGEST_PART, length), 0, -1):
        part = text[length - size :]
        if (part in _LEADING and may_lead(text, length - size, before)) or (
            part in _PARTS and may_begin(text, length - size, before)
        ):
            hold = length - size
            break
    run = max(len(text.rstrip(IN_TOKENS)), length - _LONGEST_TOKEN)
    for prefix in TOKENS:
        at = text.find(prefix, run, hold)
        if at >= 0 and may_begin(text, at, before):
            hold = at
    for lead in LEADS:
        at = text.find(lead, max(0, length - _LONGEST_TOKEN), hold)
        while at >= 0:
            if _open(lead).fullmatch(text, at + len(lead)) is not None:
                hold = at
                break
            at = text.find(lead, at + 1, hold)
    at = text.rfind(_KEY, max(0, length - _LONGEST_KEY), hold)
    if at >= 0 and _is_open_key(text, at):
        hold = at
    return hold


@cache
def _open(lead: str) -> re.Pattern[str]:
    return re.compile(LEADS[lead][1], re.ASCII)


def _is_open_key(text: str, at: int) -> bool:
    header = text[at : at + _KEY_HEADER]
    if len(header) == _KEY_HEADER and "PRIVATE KEY-----" not in header:
        return False
    end = text.find("-----END ", at)
    footer = text[end : end + _KEY_HEADER] if end >= 0 else ""
    return len(footer) < _KEY_HEADER and "KEY-----" not in footer
