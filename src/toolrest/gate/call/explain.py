"""Explain the decision on a call and the rule behind it, without running it or asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from toolrest.answer import Answer
from toolrest.errors import ToolCallError
from toolrest.gate.approval.request import Choice
from toolrest.gate.call.understand import fingerprint_of, route
from toolrest.gate.context import Context
from toolrest.gate.decision.judge import judge_by_policy
from toolrest.items import CallItem
from toolrest.policy.effects import Effects

if TYPE_CHECKING:
    from toolrest.gate.decision.decide import Decision
    from toolrest.gate.session import Session
    from toolrest.gate.tool.call import ToolCall


class Explanation(Struct, frozen=True):
    """The verdict on a call, the rule that gives it, and the choices of an approval."""

    tool: str
    verdict: Answer
    rule: str
    reason: str
    risk: str
    leaves: bool = False
    effects: Effects = field(default_factory=Effects.none)
    choices: tuple[Choice, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For commands with --json."""
        return {
            "tool": self.tool,
            "verdict": self.verdict,
            "rule": self.rule,
            "reason": self.reason,
            "risk": self.risk,
            "outside_the_sandbox": self.leaves,
            "keys": list(self.effects.keys()),
            "choices": [choice.to_json() for choice in self.choices],
        }


def explain(session: Session, item: CallItem) -> Explanation:
    """Take a call as far as its decision, without hooks and without looking at files."""
    name = item.name
    try:
        found = route(item, session.registry, session.servers)
        name = found.tool.name
        ctx = Context(session, "explain", name, "explain", session.turn_diff())
        call = found.tool.begin(found.decode().args, ctx)
        decision = judge_by_policy(session, call, fingerprint_of(found))
        decision = session.mode.judge(call, decision)
    except ToolCallError as error:
        return Explanation(name, Answer.DENY, error.kind, error.message, "none")
    return Explanation(
        name,
        decision.verdict,
        decision.rule,
        session.redactor.redact(decision.reason),
        call.risk.label,
        decision.leaves,
        call.effects,
        _choices(session, call, decision),
    )


def _choices(session: Session, call: ToolCall, decision: Decision) -> tuple[Choice, ...]:
    if decision.verdict != Answer.ASK:
        return ()
    return session.memory.choices(decision, decision.keys or (), call.risk)
