"""The mode that a client chose for a session: it only narrows what the settings allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.gate.decision.decide import Decision
from toolrest.policy.effects import Risk
from toolrest.policy.modes import Mode

if TYPE_CHECKING:
    from toolrest.gate.tool.call import ToolCall

ModeName: TypeAlias = Literal["read-only", "ask", "auto"]
_EASED: tuple[Mode, ...] = ("on-request", "on-failure")
"""Policies that ask less than `untrusted`, and never deny what `untrusted` asks about."""
_READ_ONLY = (
    "the user has put this session into read-only mode: it may look at files and run commands that "
    "are known to change nothing. Report what should be changed instead"
)


class ModeLimit(Struct):
    """The chosen mode; a session shares it with its sub-agents. `auto`: the settings decide."""

    name: ModeName = "auto"

    def choose(self, name: ModeName) -> None:
        """Go into a mode; it counts from the next decision on."""
        self.name = name

    def policy(self, own: Mode) -> Mode:
        """The approval policy in this mode, given that of the settings."""
        return "untrusted" if self.name == "ask" and own in _EASED else own

    def judge(self, call: ToolCall, decision: Decision) -> Decision:
        """The decision, or DENY for what may change something in read-only mode."""
        if self.name != "read-only" or decision.verdict == Answer.DENY:
            return decision
        if decision.rule == "session.poll" or not _changes(call):
            return decision
        return Decision(Answer.DENY, "session.mode", _READ_ONLY)


def offered_modes(policy: Mode, sandbox_mode: str) -> list[ModeName]:
    """The modes that differ under these settings; the last is what the settings say."""
    if policy in ("never", "dangerous") or sandbox_mode == "read-only":
        return ["read-only", "auto"]
    return ["read-only", "ask", "auto"] if policy in _EASED else ["read-only", "ask"]


def _changes(call: ToolCall) -> bool:
    """Whether a call may change something; sub-agents are limited themselves."""
    effects = call.effects
    if effects.writes or effects.is_unknown or effects.critical is not None:
        return True
    if call.tool.only_reads or effects.looks:
        return effects.escalates is not None
    if effects.runs:
        return True
    if effects.calls:
        return not effects.confined
    return call.risk > (Risk.WRITE if effects.connects else Risk.READ)
