"""Which keys does a command line need, and does an earlier yes cover one of its commands?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolrest.policy.grants.key import GrantKey
from toolrest.policy.grants._merge_grant_prefix import grant_words
from toolrest.policy.paths.names import inside
from toolrest.policy.rules.rules import Decision
from toolrest.policy.verdict.verdict import Kind, Segment
from toolrest.policy.verdict.outcome import Granted, Outcome

_OPEN = "\0"
"""Stands for words that only the shell can tell: no stored word is like it."""


def command_need(segment: Segment, *, outside: bool) -> GrantKey:
    """What one command needs, its words as far as they are literal."""
    words = segment.argv
    if segment.marks:
        first = next(place for place, mark in enumerate(segment.marks) if mark)
        words = (*words[:first], _OPEN)
    return GrantKey("run", words, exact=True, outside=outside)


def granted_by(covers: Callable[[GrantKey, Sequence[str]], bool], *, outside: bool) -> Granted:
    """For `outcome`: whether an earlier yes covers a command where it runs."""

    def granted(segment: Segment) -> bool:
        return covers(command_need(segment, outside=outside), segment.cwds)

    return granted


def command_keys(found: Outcome, *, workspace: str, outside: bool) -> tuple[GrantKey, ...]:
    """The keys that would let this command line through next time; none if nothing would.

    What a command runs in turn belongs to it. A key counts in the workspace, or in the folder
    elsewhere that the command runs in.
    """
    keys: dict[GrantKey, None] = {}
    depth = -1
    for decided in found.decided:
        segment = decided.segment
        if depth >= 0 and segment.depth > depth and segment.kind <= Kind.RUNS:
            continue
        depth = -1
        if decided.decision == Decision.ALLOW:
            continue
        key = _key(segment, workspace, outside=outside)
        if decided.by_rule or key is None:
            return ()
        keys[key] = None
        depth = segment.depth
    return tuple(keys)


def _key(segment: Segment, workspace: str, *, outside: bool) -> GrantKey | None:
    root = _root(segment.cwds, workspace)
    if root is None or not segment.argv or segment.kind > Kind.RUNS or segment.assigns:
        return None
    words, exact = grant_words(segment.argv)
    if any(segment.marks[: len(words)]) or (exact and not segment.literal):
        return None
    return GrantKey("run", words, root, exact=exact, outside=outside)


def _root(cwds: Sequence[str], workspace: str) -> str | None:
    if cwds and all(inside(cwd, workspace) for cwd in cwds):
        return workspace
    return cwds[0] if len(cwds) == 1 else None
