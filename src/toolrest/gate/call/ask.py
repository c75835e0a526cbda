"""Approval requests for calls: everything a call will do, and what each choice approves.

Only loaded when an approval is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.answer import Answer
from toolrest.errors import SandboxDenied, ToolCallError
from toolrest.gate.approval.request import ApprovalRequest, Choice, Exact, Review
from toolrest.gate.call.report import emit_decision
from toolrest.gate.decision.decide import Decision

if TYPE_CHECKING:
    from toolrest.gate.call.walk import Walk
    from toolrest.gate.session import Session
    from toolrest.gate.tool.call import ToolCall

RETRY_REASON = "command failed; retry without sandbox?"


async def ask(
    walk: Walk, call: ToolCall, decision: Decision, *, retry: bool = False
) -> Review | None:
    """The approver's review, or None when a hook approved; a denial is raised."""
    session = walk.session
    request = request_for(walk, call, decision, retry=retry)
    review: Review | None = None
    by = "hook"
    waits_aside = walk.turn.has_neighbours and walk.place.taken
    if waits_aside:
        walk.place.give_up()
    try:
        if session.hooks is None or not await session.hooks.answered(walk, call, request):
            by = "user"
            review = await session.approvals.ask(request, walk.turn.id)
    except ToolCallError as error:
        denied = Decision(Answer.DENY, decision.rule, error.message)
        emit_decision(walk, call, denied, error.setting or by, error.said)
        error.message = call.tool.rejected_text(error.message)
        raise
    reason = decision.reason
    if review is not None:
        by = review.setting or by
        kept = session.memory.keep(request, review)
        reason = f"{reason}; {kept.problem}" if kept.problem else reason
        walk.note = kept.note
    emit_decision(walk, call, Decision(Answer.ALLOW, decision.rule, reason), by)
    if waits_aside:
        await walk.place.take(call.effects)
    return review


async def may_leave(walk: Walk, call: ToolCall, denied: SandboxDenied) -> bool:
    """Whether a call that the sandbox has blocked may be retried outside; a denial is raised.

    A one-off approval of this call covers the retry where its prompt said so; an earlier approval
    of such a retry does where it was given for the session. Other grants do not.
    """
    unasked = not denied.ended_well
    announced = call.tool.may_escalate and call.covers_outside(denied.subjects)
    if unasked and call.approved and announced:
        return True
    if not _may_retry(walk.session, call) or _is_listed_off(walk.session, denied):
        return False
    if unasked and call.approved and call.tool.skips_second_question:
        return True
    keys = call.retry_keys(walk.fingerprint)
    question = Decision(Answer.ASK, "sandbox.retry", RETRY_REASON, leaves=True, keys=keys)
    recalled = walk.session.memory.recall(question, keys, call.ctx.cwd)
    if unasked and recalled.verdict == Answer.ALLOW:
        emit_decision(walk, call, recalled)
        return True
    await ask(walk, call, question, retry=True)
    return True


def _is_listed_off(session: Session, denied: SandboxDenied) -> bool:
    """Whether a host was refused by the list of the settings, which nobody is asked about."""
    listed = session.settings.tool_security.allowed_network_domains
    return listed is not None and any(what == "network" for what, _ in denied.subjects)


def _may_retry(session: Session, call: ToolCall) -> bool:
    return session.decider.retries_outside and call.tool.may_escalate


def request_for(
    walk: Walk, call: ToolCall, decision: Decision, *, retry: bool = False
) -> ApprovalRequest:
    """The approval request for a call; `retry`: the sandbox has blocked its first attempt."""
    redact = walk.session.redactor.redact
    shown = call.question()
    route = walk.route
    exact = Exact(route.text, route.freeform, shown.files) if route is not None else None
    return ApprovalRequest(
        walk.call_id,
        call.tool.name,
        walk.arguments,
        redact(decision.reason),
        call.risk,
        call.effects,
        tuple(map(redact, call.effects.keys())),
        choices=_choices(walk, call, decision, retry=retry),
        rule=decision.rule,
        command=tuple(map(redact, shown.command)),
        cwd=shown.cwd or call.ctx.cwd,
        diff=redact(shown.diff),
        fingerprint=walk.fingerprint,
        leaves=decision.leaves,
        retry_reason=redact(decision.reason) if retry else None,
        turn_id=walk.turn.id,
        purpose=redact(shown.purpose),
        title="" if retry else redact(shown.title or decision.title),
        notes=tuple(map(redact, (*decision.notes, *shown.notes))),
        changes=walk.session.redactor.redact_json(shown.changes),
        exact=exact,
        protected=_protected(call),
        parsed_cmd=tuple(walk.session.redactor.redact_json(part) for part in shown.parsed),
    )


def _protected(call: ToolCall) -> str:
    """Why only a person may approve the call: the protected name that it writes, with the rule."""
    files = call.ctx.files
    rules = [files.protected_rule(path) for path in call.effects.writes]
    for path in call.known_writes():
        rules.append(files.protected_rule(path, command=True))
    return next(filter(None, rules), "")


def _choices(walk: Walk, call: ToolCall, decision: Decision, *, retry: bool) -> tuple[Choice, ...]:
    session = walk.session
    again = not decision.leaves and call.effects.confined and _may_retry(session, call)
    choices = session.memory.choices(
        decision,
        decision.keys or (),
        call.risk,
        retries=again and call.tool.skips_second_question,
        session_only=retry,
    )
    # A choice that holds a secret is neither shown nor stored.
    redact = session.redactor.redact
    return tuple(choice for choice in choices if redact(choice.sentence) == choice.sentence)
