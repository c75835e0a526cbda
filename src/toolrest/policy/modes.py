"""Approval modes: the one table of what each of them allows, asks about and denies.

Every decision about a call, whatever tool it is for, looks its strictest row up here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from toolrest.answer import Answer

if TYPE_CHECKING:
    from toolrest.config import Settings

Mode: TypeAlias = Literal[
    "strict", "auto", "untrusted", "on-request", "on-failure", "never", "dangerous"
]
MODES: tuple[Mode, ...] = get_args(Mode)
Row: TypeAlias = Literal[
    "nothing",
    "read",
    "write",
    "confined",
    "execute",
    "git",
    "leave",
    "unread",
    "critical",
    "refused",
]

_OK, ASK, DENY = Answer.ALLOW, Answer.ASK, Answer.DENY

#                            strict  auto    untrust on-req  on-fail never   dangerous
_TABLE: dict[Row, tuple[Answer, ...]] = {
    "nothing": (_OK, _OK, _OK, _OK, _OK, _OK, _OK),
    "read": (ASK, _OK, _OK, _OK, _OK, _OK, _OK),
    "write": (ASK, ASK, ASK, _OK, _OK, _OK, _OK),
    "confined": (ASK, ASK, ASK, _OK, _OK, _OK, _OK),
    "execute": (ASK, ASK, ASK, ASK, ASK, _OK, _OK),
    "git": (ASK, ASK, ASK, ASK, _OK, _OK, _OK),
    "leave": (ASK, ASK, ASK, ASK, ASK, DENY, DENY),
    "unread": (ASK, ASK, ASK, ASK, ASK, DENY, _OK),
    "critical": (ASK, ASK, ASK, ASK, ASK, DENY, _OK),
    "refused": (DENY, DENY, DENY, DENY, DENY, DENY, DENY),
}
_PLACE = {mode: place for place, mode in enumerate(MODES)}
_TRUSTS_FULL_ACCESS: frozenset[Mode] = frozenset(("on-request", "on-failure"))
"""Modes that allow running programs where the user has turned the sandbox off."""
_TRIES_INSIDE: frozenset[Mode] = frozenset(("on-failure", "dangerous"))
"""Modes that first try in the sandbox what should leave it: there it can only fail."""

WORDS: dict[Row, str] = {
    "nothing": "touches nothing",
    "read": "reads",
    "write": "writes inside the writable roots; connects, when the network is on",
    "confined": "runs a program in the sandbox",
    "execute": "runs a program without a sandbox, calls another server, or declares no effects",
    "git": "git reading a repository without a sandbox",
    "leave": "has to leave: writes elsewhere, connects while the network is off, or asks to",
    "unread": "a command that cannot be understood beforehand",
    "critical": "on the dangerous list",
    "refused": "too large to be judged",
}
"""A description of each row, for people."""


def need(what: Row, mode: Mode, *, sandboxed: bool = True, command: bool = False) -> Answer:
    """The answer for a call of this kind. `command`: it runs in the sandbox unless it may leave."""
    if what == "execute" and not sandboxed and mode in _TRUSTS_FULL_ACCESS:
        return _OK
    if what == "leave" and (not sandboxed or (command and mode in _TRIES_INSIDE)):
        return need("confined", mode)
    return _TABLE[what][_PLACE[mode]]


def table() -> str:
    """The table as Markdown, for the manual; a test holds the manual against it."""
    lines = [
        f"| what a call does | {' | '.join(MODES)} |",
        f"|---|{'---|' * len(MODES)}",
    ]
    for what, words in WORDS.items():
        cells = [_cell(what, mode) for mode in MODES]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(what: Row, mode: Mode) -> str:
    usual = need(what, mode)
    notes = []
    if need(what, mode, command=True) != usual:
        notes.append(f"a command: {need(what, mode, command=True)}, inside")
    bare = need(what, mode, sandboxed=False)
    if bare != usual:
        notes.append(f"full access: {bare}")
    return f"{usual} ({'; '.join(notes)})" if notes else usual


def network_of(settings: Settings) -> Literal["on", "allowlist", "off"]:
    """The network that commands may reach: all, the listed hosts, or none.

    A list that is set is a ceiling, whatever `network_access` says, even when it is empty: what
    it lacks is refused, and not asked about.
    """
    if settings.tool_security.allowed_network_domains is not None:
        return "allowlist"
    return "on" if settings.sandbox_workspace_write.network_access else "off"
