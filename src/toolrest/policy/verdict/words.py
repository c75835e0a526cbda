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
    hosts = (host for one in asked for host in one.segment.connects if not is_loopback(host))
    return f"Allow this command to connect to {', '.join(dict.fromkeys(hosts))}?"


def notes_of(found: Outcome, roots: tuple[str, ...], *, leaves: bool) -> tuple[str, ...]:
    """The reasons, at most three."""
    notes = dict.fromkeys(note for one in _asked(found) for note in _notes(one, roots))
    if leaves and title_of(found):
        return "The network is off; it runs outside the sandbox for that.", *[*notes][:_MOST]
    return tuple([*notes][:_MOST])


def _asked(found: Outcome) -> list[Decided]:
    return [one for one in found.decided if one.decision == Answer.ASK]


def _notes(decided: Decided, roots: tuple[str, ...]) -> Iterator[str]:
    segment, row = decided.segment, decided.row
    if decided.by_rule:
        rules = [match for match in decided.matches if match.decision == Answer.ASK]
        said = max(rules, key=lambda match: len(match.prefix), default=None)
        why = said.justification if said is not None else None
        yield f"A rule asks about this: {why}" if why else "A rule asks about this."
    elif row == "write.outside" and any(path.endswith("/.git") for path in segment.writes):
        yield "It makes a repository, and a command in the sandbox cannot make `.git`."
    elif row == "write.outside":
        outside = [p for p in (*segment.writes, *segment.redirected) if leaves_roots(p, roots)]
        yield f"It writes {', '.join(dict.fromkeys(outside))}."
    elif row == "network.off":
        yield from ()
    elif row == "git.unconfined":
        yield "Outside the sandbox git runs programs that the repository's settings name."
    elif segment.kind >= CommandClass.DANGEROUS or row == "unknown":
        yield f"{segment.why[:1].upper()}{segment.why[1:]}."
