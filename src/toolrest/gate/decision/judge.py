"""The decision on a call: may it run? All that has a say is asked here, in this order.

1. Repeated calls: the same mutating call with the same result is denied (`LoopWatch`).
2. The call's own answer (`ToolCall.decide`: a command line, a server's settings, a poll), or else
   the table by its strictest effect (`Decider`); paths that are hidden or kept from writing are
   denied in every mode.
3. A tool that the host program passed and that declares nothing is not asked about.
4. The user's overrides for single tools, servers and folders (`[approvals]`).
5. Earlier approvals: grants that cover all that the call needs (`Memory`).
6. External content: a call that could send data out is asked about once some was read (`Taint`),
   unless an approval that knew of it covers the tool.
7. PreToolUse hooks: they ask, deny, or approve an ordinary question (`HookedWalks`).
8. The session's mode: in read-only mode nothing changes anything (`ModeLimit`).

Each step takes the decision so far. A denial is final: no later step lifts it.

A call that cannot work, or that asks for what its mode never gives, is refused before it comes here
(`begin` and `prepare` of its ToolCall, `FilesRead.refuse_stale`). After it was decided here, `ask`
hands a question to the approver, and `may_leave` asks once more where the sandbox blocked the call.
"""

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


def judge(walk: Walk, call: ToolCall) -> Decision:
    """The decision on a call, by everything that has a say."""
    session = walk.session
    if not call.tool.polling:
        refusal = walk.turn.loops.refusal(walk.fingerprint, mutating=call.mutating)
        if refusal is not None:
            return Decision(Answer.DENY, "loop", refusal)
    decision = judge_by_policy(session, call, walk.fingerprint)
    if session.taint.external:
        decision = session.taint.judge(call, decision, session.decider.mode)
        if decision.rule == "external.content" and decision.keys:
            decision = session.memory.recall(decision, decision.keys, call.ctx.cwd)
    if session.hooks is not None:
        decision = session.hooks.decided(walk, call, decision)
    return session.mode.judge(call, decision)


def judge_by_policy(session: Session, call: ToolCall, fingerprint: str) -> Decision:
    """The decision by steps 2 to 5, which depend on nothing that this session has done before."""
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
    if decision.verdict == Answer.ASK and decision.keys is None:
        needs = call.needs(fingerprint, leaves=decision.leaves)
        recalled = session.memory.recall(decision, needs, call.ctx.cwd)
        decision = replace(decision, keys=needs) if recalled is decision else recalled
    return decision


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
