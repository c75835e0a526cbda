"""The way of one call, from the model's item to what its tool returns, from top to bottom.

Whatever stops a call on the way is raised: then it is answered and does not run. What was judged is
what runs: where a tool finds at the last moment that it is not (`Changed`), the call is begun anew,
judged and asked about once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.errors import Rejected
from toolrest.gate.call.attempt import run_decided
from toolrest.gate.call.report import emit_decision
from toolrest.gate.call.understand import begin_anew, understand
from toolrest.gate.decision.judge import judge
from toolrest.policy.launch import Changed

if TYPE_CHECKING:
    from toolrest.gate.call.walk import Walk
    from toolrest.gate.decision.decide import Decision
    from toolrest.gate.tool.call import ToolCall
    from toolrest.items import ToolOutput

_MOST_CHANGES = 2


async def take_steps(walk: Walk) -> ToolOutput:
    """Understand the call, wait for its turn, judge it, ask about it, run it."""
    session = walk.session
    call = await understand(walk)
    if session.hooks is not None:
        call = await session.hooks.before(walk, call)  # may deny the call, or rewrite its arguments
    await walk.place.take(call.effects)
    _refuse_after_abort(walk)
    changed = ""
    for _ in range(_MOST_CHANGES):
        if call.effects.writes:
            await session.files_read.refuse_stale(call.effects.writes, call.ctx)
        before = call.effects
        await call.prepare()
        if call.effects != before:
            await walk.place.change(call.effects)
        call.approved = False
        decision = _judge(walk, call, changed)
        if decision.verdict == Answer.ASK:
            from toolrest.gate.call.ask import ask  # only where something is asked

            review = await ask(walk, call, decision)
            # Only a one-off approval covers a retry; a session grant or a hook's does not.
            call.approved = review is not None and review.answer == "approved"
        _refuse_after_abort(walk)
        # Only here, after an approval or a rule of the user's, may a call leave the sandbox.
        call.ctx.outside = decision.leaves and not decision.tries_inside
        try:
            return await run_decided(walk, call)
        except Changed as found:
            call.ctx.outside = False
            changed = f"changed since it was judged: {found}"
            before, call = call.effects, await begin_anew(walk, call, found)
            if call.effects != before:
                await walk.place.change(call.effects)
    raise Rejected(f"not run: its effects keep changing: {changed}")


def _judge(walk: Walk, call: ToolCall, changed: str) -> Decision:
    """Allow, ask or deny, and announce it; a denial is raised."""
    walk.decided = True
    decision = judge(walk, call)
    walk.looping = decision.rule == "loop"
    if changed:
        reason = f"{changed}; {decision.reason}" if decision.reason else changed
        decision = replace(decision, reason=reason)
    emit_decision(walk, call, decision)
    if decision.verdict == Answer.DENY:
        raise Rejected(decision.reason)
    return decision


def _refuse_after_abort(walk: Walk) -> None:
    """Refuse the call when the approver has aborted the turn while it waited."""
    failure = walk.turn.failure
    if failure is not None and failure.kind == "approval_denied":
        raise Rejected(f"not run: the turn has failed: {failure}", kind="fatal")
