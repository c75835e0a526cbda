"""The question about a command in words for a person: a sentence, and the reasons beside it."""

from __future__ import annotations

from collections.abc import Iterator

from toolrest.answer import Answer
from toolrest.policy.commands.network import is_loopback
from toolrest.policy.verdict.outcome import Outcome, leaves_roots
from toolrest.policy.verdict.requirement import Decided
from toolrest.policy.verdict.verdict import CommandClass

_MOST = 3


def title_of(found: Outcome) -> str:
    """The sentence where a connection is all that is asked about; else empty."""
    asked = _asked(found)
    if not asked or any(one.row != "network.off" for one in asked):
        return ""
    return f"Allow this command to connect to {_hosts(asked)}?"


def notes_of(found: Outcome, roots: tuple[str, ...], *, leaves: bool) -> tuple[str, ...]:
    """The reasons, and how many there are beyond the first three."""
    asked = _asked(found)
    notes = [*_outside(asked, roots), *dict.fromkeys(note for one in asked for note in _notes(one))]
    if title_of(found):
        notes[:0] = ["The network is off; it runs outside the sandbox for that."] if leaves else []
    elif hosts := _hosts(asked):
        notes.append(f"It connects to {hosts}, and the network is off.")
    more = len(notes) - _MOST
    if more > 0:
        notes[_MOST:] = [
            f"There {'is 1 more reason' if more == 1 else f'are {more} more reasons'}."
        ]
    return tuple(notes)


def _asked(found: Outcome) -> list[Decided]:
    return [one for one in found.decided if one.decision == Answer.ASK]


def _hosts(asked: list[Decided]) -> str:
    """The hosts that the network is off for."""
    off = (one for one in asked if one.row == "network.off")
    hosts = (host for one in off for host in one.segment.connects if not is_loopback(host))
    return ", ".join(dict.fromkeys(hosts))


def _outside(asked: list[Decided], roots: tuple[str, ...]) -> Iterator[str]:
    """All that is written outside, in one sentence."""
    parts = [one.segment for one in asked if one.row == "write.outside" and not one.by_rule]
    repositories = [path for part in parts for path in part.writes if path.endswith("/.git")]
    if repositories:
        yield "It makes a repository, and a command in the sandbox cannot make `.git`."
    written = (path for part in parts for path in (*part.writes, *part.redirected))
    outside = [path for path in dict.fromkeys(written) if leaves_roots(path, roots)]
    if others := [path for path in outside if path not in repositories]:
        yield f"It writes {', '.join(others)}."


def _notes(decided: Decided) -> Iterator[str]:
    segment, row = decided.segment, decided.row
    if decided.by_rule:
        rules = [match for match in decided.matches if match.decision == Answer.ASK]
        said = max(rules, key=lambda match: len(match.prefix), default=None)
        why = said.justification if said is not None else None
        yield f"A rule asks about this: {why}" if why else "A rule asks about this."
    elif row in ("write.outside", "network.off"):
        return
    elif row == "git.unconfined":
        yield "Outside the sandbox git runs programs that the repository's settings name."
    elif segment.kind >= CommandClass.DANGEROUS or row == "unknown":
        why = segment.why
        named = why.startswith(f"{segment.program} ")
        yield f"{why}." if named else f"{why[:1].upper()}{why[1:]}."
