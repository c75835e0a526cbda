"""The requirement of a command: allow, ask or deny, by its verdict, rules, mode and sandbox.

A segment that rules match is decided by the strictest of them, the others by the table of
`modes`: a safe one does nothing or reads, one that touches files or runs a program is confined
(or executes, without a sandbox), one that writes outside the roots or connects while the network
is off has to leave. Without a sandbox nothing is outside the roots and the network is on. The
strictest segment decides; a mode that never asks denies what others would ask about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from toolrest.answer import Answer
from toolrest.policy.commands.network import is_loopback
from toolrest.policy.modes import Row, need
from toolrest.policy.paths.names import inside
from toolrest.policy.rules.amendment import is_banned
from toolrest.policy.rules.rules import RuleMatch, Rules
from toolrest.policy.verdict.requirement import LEAVING, Amendment, Decided
from toolrest.policy.verdict.requirement import ExecMode as ExecMode
from toolrest.policy.verdict.requirement import Outcome as Outcome
from toolrest.policy.verdict.requirement import Requirement as Requirement
from toolrest.policy.verdict.requirement import SandboxMode as SandboxMode
from toolrest.policy.verdict.requirement import Setting as Setting
from toolrest.policy.verdict.verdict import CommandClass, Judgement, Segment

Granted: TypeAlias = Callable[[Segment], bool]
"""Whether a grant covers such a command."""

NEVER = "approval required by policy, but AskForApproval is set to Never"
DANGEROUS = 'approval required by policy, but approval_policy = "dangerous" never asks'
_GRAVE: dict[CommandClass, Row] = {
    CommandClass.REFUSED: "refused",
    CommandClass.DANGEROUS: "critical",
    CommandClass.UNKNOWN: "unread",
}
_ROWS: dict[Row, str] = {
    "refused": "refused",
    "critical": "dangerous",
    "unread": "unknown",
    "git": "git.unconfined",
    "leave": "escalated",
}
FORCED_RM = "rm -f style commands are not permitted. Use a safer approach"


def outcome(
    verdict: Judgement,
    rules: Rules,
    setting: Setting,
    *,
    prefix_rule: Sequence[str] | None = None,
    granted: Granted | None = None,
) -> Outcome:
    """Decide. `prefix_rule` is the prefix that the model proposes to remember, if any.

    What is `granted` may run where the table alone would ask; it lifts no rule and nothing that
    is dangerous or cannot be understood.
    """
    decided = _decide(verdict, rules, setting, granted)
    decision = max((d.decision for d in decided), default=Answer.ALLOW)
    if decision == Answer.DENY:
        requirement = _denied(verdict, decided)
    elif decision == Answer.ALLOW:
        by_rules = verdict.plain and bool(decided) and all(d.may_leave for d in decided)
        requirement = Requirement(Answer.ALLOW, amendment=_after(decided), bypass_sandbox=by_rules)
    elif setting.mode in ("never", "dangerous"):
        reason = NEVER if setting.mode == "never" else DANGEROUS
        requirement = Requirement(Answer.DENY, reason, _detail(decided, decision))
    else:
        amendment = _amendment(verdict, rules, setting, decided, prefix_rule)
        reason_given = _prompt_reason(verdict, decided)
        requirement = Requirement(Answer.ASK, reason_given, _detail(decided, decision), amendment)
    return Outcome(requirement, tuple(decided))


def _decide(
    verdict: Judgement, rules: Rules, setting: Setting, granted: Granted | None = None
) -> list[Decided]:
    roots = () if setting.sandbox == "read-only" else verdict.roots
    decided: list[Decided] = []
    covering: Decided | None = None
    for segment in verdict.segments:
        if covering is not None and segment.depth <= covering.segment.depth:
            covering = None
        found = _one(segment, rules, setting, roots, covering)
        # Outside, a grant is for one program: what that runs in turn needs its own.
        alone = found.row in LEAVING
        if granted is not None and _liftable(found) and granted(segment):
            found = found._replace(decision=Answer.ALLOW, row="grant")
        covers = found.row == "rule" or (found.row == "grant" and not alone)
        if covering is None and covers and found.decision == Answer.ALLOW:
            covering = found
        decided.append(found)
    return decided


def named_outside(verdict: Judgement, setting: Setting) -> tuple[tuple[str, ...], ...]:
    """The paths that a confined line names as written and the hosts, where the sandbox has neither.

    An approval of a line that names them lets just these happen in the modes that ask about every
    command (D-92).
    """
    if setting.mode not in ("auto", "strict") or not setting.limited:
        return ((), ())
    roots = () if setting.sandbox == "read-only" else verdict.roots
    hosts = () if setting.network else verdict.connects
    return (
        tuple(path for path in verdict.writes if leaves_roots(path, roots)),
        tuple(host for host in hosts if not is_loopback(host)),
    )


def _one(
    segment: Segment,
    rules: Rules,
    setting: Setting,
    roots: tuple[str, ...],
    covering: Decided | None,
) -> Decided:
    matches = tuple(rules.matches(segment.argv, segment.marks))
    if matches:
        decision = max(match.decision for match in matches)
        if decision != Answer.ALLOW or _lifts(segment, matches):
            reached = _outside(segment.redirected, roots, setting)
            if decision == Answer.ALLOW and reached:
                return Decided(segment, Answer.ASK, "write.outside", matches)
            inside = decision == Answer.ALLOW and not any(match.outside for match in matches)
            row = _must_leave(segment, setting, roots) if inside else None
            if row is not None:
                return Decided(segment, Answer.ASK, row, matches)
            return Decided(segment, decision, "rule", matches)
    elif covering is not None and segment.kind <= CommandClass.RUNS and not segment.redirected:
        return Decided(segment, Answer.ALLOW, covering.row, covering.matches)
    decision, row = _heuristic(segment, setting)
    left = _must_leave(segment, setting, roots) if decision == Answer.ALLOW else None
    if left is not None:
        return Decided(segment, Answer.ASK, left, matches)
    return Decided(segment, decision, row, matches)


def _must_leave(segment: Segment, setting: Setting, roots: tuple[str, ...]) -> str | None:
    """The row that says why a command cannot do its work inside the sandbox; None if it can."""
    if not setting.limited or need("leave", setting.mode, command=True) == Answer.ALLOW:
        return None
    if setting.escalated:
        return "escalated"
    if _outside(segment.writes + segment.redirected, roots, setting):
        return "write.outside"
    if not setting.network and not all(map(is_loopback, segment.connects)):
        return "network.off"
    return None


def _lifts(segment: Segment, matches: tuple[RuleMatch, ...]) -> bool:
    """Whether an allow rule covers a command; a dangerous one only word by word.

    It does not cover variables that are set for the command: they may make it another one. Nor
    does the rule of a name mean a file of that name which a tool can have written.
    """
    if segment.assigns or segment.planted:
        return False
    if segment.kind <= CommandClass.RUNS:
        return True
    spelled_out = any(len(match.prefix) == len(segment.argv) for match in matches)
    return segment.kind == CommandClass.DANGEROUS and spelled_out and not segment.redirected


def _outside(paths: tuple[str, ...], roots: tuple[str, ...], setting: Setting) -> bool:
    if not setting.limited:
        return False
    return any(leaves_roots(path, roots) for path in paths)


def leaves_roots(path: str, roots: tuple[str, ...]) -> bool:
    """Whether a write leaves the roots; so does making a root's `.git`, as that makes its hooks."""
    folder, _, name = path.rpartition("/")
    if name == ".git" and folder in roots:
        return not os.path.lexists(path)
    return not any(inside(path, root) for root in roots)


def _liftable(found: Decided) -> bool:
    """Whether a grant can cover a segment that the table asks about.

    It covers the command, not a file that the shell writes or a variable that it sets.
    """
    segment = found.segment
    return (
        found.decision == Answer.ASK
        and not found.by_rule
        and bool(segment.argv)
        and segment.kind <= CommandClass.RUNS
        and not segment.assigns
        and not segment.redirected
    )


def _heuristic(segment: Segment, setting: Setting) -> tuple[Answer, str]:
    what = _what(segment, setting)
    answer = need(what, setting.mode, sandboxed=setting.limited)
    if answer == Answer.ALLOW:
        return Answer.ALLOW, _allowed_row(what, setting)
    row = _ROWS.get(what, f"mode.{setting.mode}")
    denied = answer == Answer.DENY and what in ("critical", "refused")
    return (Answer.DENY if denied else Answer.ASK), row


def _what(segment: Segment, setting: Setting) -> Row:
    """The row of the table that a segment belongs to."""
    grave = _GRAVE.get(segment.kind)
    if grave is not None:
        return grave
    if setting.limited and setting.escalated:
        return "leave"
    if segment.kind == CommandClass.SAFE:
        if segment.needs_disarmed_git and not setting.confined:
            return "git"
        return "read" if segment.read_words or segment.reads else "nothing"
    return "confined" if setting.limited else "execute"


def _allowed_row(what: Row, setting: Setting) -> str:
    if what in ("nothing", "read"):
        return "safe"
    if setting.mode != "on-request":
        return f"mode.{setting.mode}"
    return "sandboxed" if setting.limited else "sandbox.off"


def _longest(decided: list[Decided], decision: Answer) -> RuleMatch | None:
    matches = [m for d in decided for m in d.matches if d.by_rule and m.decision == decision]
    return max(matches, key=lambda match: len(match.prefix), default=None)


def _denied(verdict: Judgement, decided: list[Decided]) -> Requirement:
    text, detail = verdict.text, _detail(decided, Answer.DENY)
    match = _longest(decided, Answer.DENY)
    if match is not None and match.justification is not None:
        return Requirement(Answer.DENY, f"`{text}` rejected: {match.justification}", detail)
    if match is not None:
        prefix = " ".join(match.prefix)
        return Requirement(
            Answer.DENY,
            f"`{text}` rejected: policy forbids commands starting with `{prefix}`",
            detail,
        )
    if any(d.decision == Answer.DENY and d.segment.rule.startswith("rm_") for d in decided):
        return Requirement(Answer.DENY, FORCED_RM, detail)
    return Requirement(Answer.DENY, f"`{text}` rejected: blocked by policy", detail)


def _prompt_reason(verdict: Judgement, decided: list[Decided]) -> str | None:
    match = _longest(decided, Answer.ASK)
    if match is None:
        return None
    if match.justification is not None:
        return f"`{verdict.text}` requires approval: {match.justification}"
    return f"`{verdict.text}` requires approval by policy"


def _detail(decided: list[Decided], decision: Answer) -> str:
    """Why the deciding segments need this, at most three reasons; rules have their own."""
    seen = dict.fromkeys(_reason(d) for d in decided if d.decision == decision and not d.by_rule)
    return "; ".join([*seen][:3])


def _reason(decided: Decided) -> str:
    segment = decided.segment
    if decided.row == "write.outside" and any(path.endswith("/.git") for path in segment.writes):
        return "it makes a repository, and no command can make `.git` inside the sandbox"
    if decided.row == "write.outside":
        return "it writes outside the writable roots"
    if decided.row == "network.off":
        hosts = ", ".join(segment.connects)
        return (
            f"it connects to {hosts}, and the network is off "
            "(sandbox_workspace_write.network_access = true turns it on)"
        )
    if decided.row == "escalated":
        return "it asks to run outside the sandbox"
    if decided.row == "git.unconfined":
        return "outside the sandbox git runs whatever the repository's configuration names"
    return f"{segment.rule}: {segment.why}" if segment.why else f"it runs {segment.program}"


def _usable(segment: Segment) -> bool:
    return bool(segment.argv) and segment.literal and segment.kind <= CommandClass.RUNS


def _amendment(
    verdict: Judgement,
    rules: Rules,
    setting: Setting,
    decided: list[Decided],
    proposed: Sequence[str] | None,
) -> Amendment:
    if any(d.by_rule and d.decision != Answer.ALLOW for d in decided):
        return None
    if (
        proposed
        and not any(d.matches for d in decided)
        and _covers(verdict, rules, setting, proposed)
    ):
        return tuple(proposed)
    for one in decided:
        if one.decision == Answer.ASK:
            prefix = one.segment.argv
            return prefix if _usable(one.segment) and not is_banned(prefix) else None
    return None


def _covers(verdict: Judgement, rules: Rules, setting: Setting, prefix: Sequence[str]) -> bool:
    """True when allowing the prefix would let every segment run."""
    if is_banned(prefix) or not all(prefix):
        return False
    left = any(d.row in LEAVING for d in _decide(verdict, rules, setting))
    after = _decide(verdict, rules.with_allow(prefix, outside=left), setting)
    return all(d.decision == Answer.ALLOW for d in after)


def _after(decided: list[Decided]) -> Amendment:
    """What to remember should the command fail in the sandbox and then be approved."""
    if any(d.matches for d in decided):
        return None
    for one in decided:
        if _usable(one.segment) and not is_banned(one.segment.argv):
            return one.segment.argv
    return None


ASKING = ("on-request", "auto", "strict")
"""Modes in which a model may ask to run a command outside the sandbox."""
_VARIANTS = {
    "untrusted": "UnlessTrusted",
    "on-failure": "OnFailure",
    "on-request": "OnRequest",
    "never": "Never",
}


def escalation_refused(mode: str, verb: str) -> str | None:
    """The answer to a call that asks to leave the sandbox in a mode that cannot ask; or None."""
    if mode in ASKING:
        return None
    variant = _VARIANTS.get(mode, mode)
    return (
        f"approval policy is {variant}; reject command — you {verb} ask for escalated permissions "
        f"if the approval policy is {variant}"
    )
