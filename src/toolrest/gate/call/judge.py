"""The decision on a call: the tool's own or the table's, then overrides, then approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.gate.decision.decide import Decision

if TYPE_CHECKING:
    from toolrest.gate.call.walk import Walk
    from toolrest.gate.session import Session
    from toolrest.gate.tool.call import ToolCall
    from toolrest.policy.rules.overrides import OverrideMatch

_BORDERS = ("critical", "unread", "leave", "refused")
"""Rows that no override lifts."""


def decide(walk: Walk, call: ToolCall) -> Decision:
    """The decision on a call, after the loop check, taint, hooks and the session's mode."""
    session = walk.session
    if not call.tool.polling:
        refusal = walk.turn.loops.refusal(walk.fingerprint, mutating=call.mutating)
        if refusal is not None:
            walk.looping = True
            return Decision(Answer.DENY, "loop", refusal)
    decision = judge_call(session, call, walk.fingerprint)
    if session.taint.external:
        decision = session.taint.judge(call, decision, session.decider.mode)
    if session.hooks is not None:
        decision = session.hooks.decided(walk, call, decision)
    return session.mode.judge(call, decision)


def judge_call(session: Session, call: ToolCall, fingerprint: str) -> Decision:
    """The decision on a call that was understood."""
    decision = call.decide()
    if decision is None:
        decision = session.decider.decide(call.effects, call.risk)
        if decision.verdict == Answer.ASK and _was_passed(session, call):
            decision = Decision(Answer.ALLOW, "host.tool")
    overrides = session.decider.overrides
    if overrides is not None and decision.verdict != Answer.DENY:
        server = call.tool.mcp[0] if call.tool.mcp else None
        override = overrides.on((call.tool.name, *call.tool.aliases), server, call.effects)
        if override is not None:
            decision = _overridden(decision, override, session.decider.mode)
    return (
        _recalled(session, call, decision, fingerprint)
        if decision.verdict == Answer.ASK
        else decision
    )


def _was_passed(session: Session, call: ToolCall) -> bool:
    """Whether the host program passed this tool, which approves what declares no effects."""
    tool = call.tool
    return (
        tool in session.registry.approved and tool.undeclared and session.decider.mode != "strict"
    )


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


def _recalled(session: Session, call: ToolCall, decision: Decision, fingerprint: str) -> Decision:
    """Allow a call that an earlier approval or grant covers."""
    if decision.keys is not None:
        return decision
    from toolrest.gate.approval.memory import needs_of

    needs = needs_of(call.effects, call.tool, fingerprint, leaves=decision.leaves)
    recalled = session.memory.recall(decision, needs, call.ctx.cwd)
    return replace(recalled, keys=tuple(needs)) if recalled is decision else recalled
