"""The steps of a call between validation and its output, in the order in which they are taken.

Each one lets the call go on, changes what the next ones see, or raises: then the call is answered
and does not run. What was judged is what runs: where a tool finds at the last moment that it is
not (`Changed`), the call is judged and asked about once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.errors import Rejected
from toolrest.gate.call.attempt import run_decided
from toolrest.gate.call.judge import decide
from toolrest.gate.call.report import emit_decision
from toolrest.gate.call.understand import ResolvedCall, canonical_effects
from toolrest.policy.launch import Changed

if TYPE_CHECKING:
    from toolrest.gate.call.walk import Walk
    from toolrest.items import ToolOutput
    from toolrest.policy.effects import Effects

_MOST_CHANGES = 3


async def run_hooks(walk: Walk, call: ResolvedCall) -> None:
    """Run PreToolUse hooks: they deny the call, or change its arguments."""
    if walk.session.hooks is not None:
        walk.call = await walk.session.hooks.before(walk, call)


async def wait_for_turn(walk: Walk, call: ResolvedCall) -> None:
    """Wait for the scheduler."""
    await walk.take_place(call.effects)


async def refuse_after_abort(walk: Walk, call: ResolvedCall) -> None:
    """Refuse the call when the approver has aborted the turn while it waited."""
    failure = walk.turn.failure
    if failure is not None and failure.kind == "approval_denied":
        raise Rejected(f"not run: the turn has failed: {failure}", kind="fatal")


async def refuse_stale_files(walk: Walk, call: ResolvedCall) -> None:
    """Refuse to write a file that has changed since the model read it."""
    if call.effects.writes:
        await walk.session.files_read.refuse_stale(call.effects.writes, call.ctx)


async def prepare(walk: Walk, call: ResolvedCall) -> None:
    """Let the tool check its arguments before the approval; that may show other effects."""
    if not call.tool.prepares:
        return
    effects = await call.tool.prepare(call.args, call.ctx)
    if effects is not None:
        await _take_effects(walk, call, effects)


async def _take_effects(walk: Walk, call: ResolvedCall, effects: Effects) -> None:
    """Replace the call's effects; where they differ, it waits for the scheduler again."""
    effects = canonical_effects(effects, call.ctx)
    if effects == call.effects:
        return
    call.effects = walk.effects = effects
    call.risk = call.tool.level(effects)
    if walk.ticket is not None:
        walk.give_up_place()
        await walk.take_place(effects)


async def judge(walk: Walk, call: ResolvedCall) -> None:
    """Allow, ask or deny: by loops, the tool or the table, overrides, grants, taint and hooks."""
    walk.decided = True
    decision = decide(walk, call)
    if walk.changed:
        reason = f"{walk.changed}; {decision.reason}" if decision.reason else walk.changed
        decision = replace(decision, reason=reason)
    walk.decision = decision
    emit_decision(walk, call, decision)
    if decision.verdict == Answer.DENY:
        raise Rejected(decision.reason)


async def ask_approver(walk: Walk, call: ResolvedCall) -> None:
    """Ask for approval where the decision is ASK; a denial raises."""
    decision = walk.decision
    if decision is not None and decision.verdict == Answer.ASK:
        from toolrest.gate.call.ask import ask  # only where something is asked

        review = await ask(walk, call, decision)
        # Only a one-off approval covers a retry; a session grant or a hook's approval does not.
        walk.approved = review is not None and review.answer == "approved"


Step = Callable[["Walk", "ResolvedCall"], Awaitable[None]]

BEFORE: tuple[Step, ...] = (run_hooks, wait_for_turn, refuse_after_abort)
JUDGED: tuple[Step, ...] = (
    refuse_stale_files,
    prepare,
    judge,
    ask_approver,
    refuse_after_abort,
)


async def take_steps(walk: Walk) -> ToolOutput:
    """Take every step, then run the tool."""
    for step in BEFORE:
        await step(walk, walk.understood)
    for _ in range(_MOST_CHANGES):
        for step in JUDGED:
            await step(walk, walk.understood)
        call = walk.understood
        # Only here, after an approval or a rule of the user's, may a call leave the sandbox.
        call.ctx.outside = walk.decision is not None and walk.decision.leaves
        try:
            return await run_decided(walk, call)
        except Changed as changed:
            walk.changed = f"changed since it was judged: {changed}"
            call.ctx.outside = False
            call.ctx.memo.clear()
            call.ctx.memo["changed"] = changed
            effects = await walk.find_effects(call.tool, call.args, call.ctx)
            await _take_effects(walk, call, effects)
    raise Rejected(f"not run: what it would do keeps changing: {walk.changed}")
