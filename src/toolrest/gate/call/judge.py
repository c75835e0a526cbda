"""The decision on a call: the tool's own or the table's, then overrides, then approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.gate.decision.decide import Decision

if TYPE_CHECKING:
    from toolrest.gate.call.understand import ResolvedCall
    from toolrest.gate.call.walk import Gate, Walk
    from toolrest.policy.rules.overrides import OverrideMatch

_BORDERS = ("critical", "unread", "leave", "refused")
"""Rows that no override lifts."""


def decide(walk: Walk, call: ResolvedCall) -> Decision:
    """The decision on a call, after the loop check, taint, hooks and the session's mode."""
    gate = walk.gate
    if not call.tool.polling:
        refusal = walk.turn.loops.refusal(walk.fingerprint, mutating=call.effects.mutating)
        if refusal is not None:
            walk.looping = True
            return Decision(Answer.DENY, "loop", refusal)
    decision = judge_call(gate, call, walk.fingerprint)
    if gate.services.taint.external:
        decision = gate.services.taint.judge(call, decision, gate.decider.mode)
    if gate.hooks is not None:
        decision = gate.hooks.decided(walk, call, decision)
    return gate.services.mode_limit.judge(call, decision)


def judge_call(gate: Gate, call: ResolvedCall, fingerprint: str) -> Decision:
    """The decision on a call that was understood."""
    decision = None
    if call.tool.decides:
        decision = call.tool.decide(call.args, call.effects, call.ctx)
    if decision is None:
        decision = gate.decider.decide(call.effects, call.risk)
        if decision.verdict == Answer.ASK and _was_passed(gate, call):
            decision = Decision(Answer.ALLOW, "host.tool")
    overrides = gate.decider.overrides
    if overrides is not None and decision.verdict != Answer.DENY:
        server = call.tool.mcp[0] if call.tool.mcp else None
        override = overrides.on((call.tool.name, *call.tool.aliases), server, call.effects)
        if override is not None:
            decision = _overridden(decision, override, gate.decider.mode)
    return (
        _recalled(gate, call, decision, fingerprint) if decision.verdict == Answer.ASK else decision
    )


def _was_passed(gate: Gate, call: ResolvedCall) -> bool:
    """Whether the host program passed this tool, which approves what declares no effects."""
    tool = call.tool
    return tool in gate.registry.approved and tool.undeclared and gate.decider.mode != "strict"


def _overridden(decision: Decision, override: OverrideMatch, mode: str) -> Decision:
    setting = override.setting
    if override.say == Answer.DENY:
        return Decision(Answer.DENY, setting, f'{setting} = "deny" forbids it')
    if override.say == Answer.ALLOW:
        lifted = (
            decision.verdict == Answer.ASK
            and not decision.leaves
            and decision.what not in _BORDERS
            and decision.rule != "command.rule"
        )
        return Decision(Answer.ALLOW, setting) if lifted else decision
    if decision.verdict == Answer.ASK:
        return decision
    if mode in ("never", "dangerous"):
        reason = f'{setting} = "ask", and approval_policy = "{mode}" never asks'
        return Decision(Answer.DENY, setting, reason)
    return replace(decision, verdict=Answer.ASK, rule=setting, reason=f'{setting} = "ask"')


def _recalled(gate: Gate, call: ResolvedCall, decision: Decision, fingerprint: str) -> Decision:
    """Allow a call that an earlier approval or grant covers."""
    if decision.keys is not None:
        return decision
    from toolrest.gate.approval.memory import needs_of

    needs = needs_of(call.effects, call.tool, fingerprint, leaves=decision.leaves)
    recalled = gate.services.memory.recall(decision, needs, call.ctx.cwd)
    return replace(recalled, keys=tuple(needs)) if recalled is decision else recalled
