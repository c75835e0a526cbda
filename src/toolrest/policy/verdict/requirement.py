"""The requirement of a command, as data: allowed, needs approval, or denied."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.policy.modes import Mode
from toolrest.policy.rules.rules import RuleMatch, spelled
from toolrest.policy.verdict.verdict import Segment

ExecMode: TypeAlias = Mode
SandboxMode: TypeAlias = Literal[
    "read-only", "workspace-write", "danger-full-access", "external-sandbox"
]
SandboxPermissions: TypeAlias = Literal[
    "use_default", "require_escalated", "with_additional_permissions"
]
Amendment: TypeAlias = "tuple[str, ...] | None"

LEAVING = ("escalated", "write.outside", "network.off")
"""Rows of commands that cannot work inside the sandbox."""


class Requirement(Struct, frozen=True):
    """The requirement of a command: it may run, needs approval, or is denied.

    `reason` is the policy's, for the model; `detail` says what was seen. `bypass_sandbox` only
    where rules allow every single command outside, too.
    """

    answer: Answer
    reason: str | None = None
    detail: str = ""
    amendment: Amendment = None
    bypass_sandbox: bool = False


class Decided(NamedTuple):
    """The decision on one segment, by rules or by a row of the table."""

    segment: Segment
    decision: Answer
    row: str
    matches: tuple[RuleMatch, ...] = ()

    @property
    def by_rule(self) -> bool:
        """True when rules decided, not the table."""
        return self.row == "rule"

    @property
    def may_leave(self) -> bool:
        """True when a rule lets this command run outside the sandbox."""
        return self.by_rule and any(match.outside for match in self.matches)

    def to_json(self) -> dict[str, Any]:
        """For `policy check --json`."""
        return {
            "command": list(self.segment.argv),
            "kind": self.segment.kind.label,
            "decision": spelled(self.decision),
            "row": self.row,
            "rule": self.segment.rule,
            "why": self.segment.why,
            "matchedRules": [match.to_json() for match in self.matches],
        }


class Outcome(Struct, frozen=True):
    """The requirement, and how each segment came to it."""

    requirement: Requirement
    decided: tuple[Decided, ...]

    @property
    def leaves(self) -> bool:
        """Whether the command has to leave the sandbox to work."""
        return any(decided.row in LEAVING for decided in self.decided)

    @property
    def answer(self) -> Answer:
        """The requirement's answer."""
        return self.requirement.answer


class Setting(Struct, frozen=True):
    """The settings that a decision depends on besides the command."""

    mode: ExecMode = "on-request"
    sandbox: SandboxMode = "workspace-write"
    network: bool = False
    permissions: SandboxPermissions = "use_default"

    @property
    def limited(self) -> bool:
        """True when Toolrest's own sandbox limits files and network."""
        return self.sandbox in ("read-only", "workspace-write")

    @property
    def escalated(self) -> bool:
        """True when the call asks to leave the sandbox."""
        return self.permissions != "use_default"

    @property
    def confined(self) -> bool:
        """True when the command will run in some sandbox."""
        return self.sandbox != "danger-full-access" and not self.escalated
