"""What somebody is asked about a call: everything it will do, and what each yes would mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.gate.review import ApprovalRequest, Choice, Exact

if TYPE_CHECKING:
    from toolrest.gate.decide import Decision
    from toolrest.gate.walk import Gate, Ready, Walk


def may_retry(gate: Gate, call: Ready) -> bool:
    """Whether a call that the sandbox blocks may be tried once more outside."""
    return gate.decider.retries_outside and call.tool.may_escalate


def request_for(walk: Walk, call: Ready, decision: Decision, *, retry: bool) -> ApprovalRequest:
    """The question about a call; `retry`: the sandbox has blocked its first attempt."""
    redact = walk.gate.services.redactor.redact
    shown = call.tool.question(call.args, call.ctx)
    exact = Exact(walk.route.text, walk.route.freeform) if walk.route is not None else None
    return ApprovalRequest(
        walk.call_id,
        call.tool.name,
        walk.arguments,
        redact(decision.reason),
        call.risk,
        call.effects,
        tuple(map(redact, call.effects.keys())),
        choices=_choices(walk, call, decision),
        rule=decision.rule,
        command=tuple(map(redact, shown.command)),
        cwd=shown.cwd or call.ctx.cwd,
        diff=redact(shown.diff),
        fingerprint=walk.fingerprint,
        leaves=decision.leaves,
        retry_reason=redact(decision.reason) if retry else None,
        turn_id=walk.turn.id,
        purpose=redact(shown.purpose),
        changes=walk.gate.services.redactor.redact_json(shown.changes),
        exact=exact,
    )


def _choices(walk: Walk, call: Ready, decision: Decision) -> tuple[Choice, ...]:
    services = walk.gate.services
    if services.memory is None:
        return ()
    again = not decision.leaves and call.effects.confined and may_retry(walk.gate, call)
    choices = services.memory.choices(
        decision,
        decision.keys or (),
        call.risk,
        retries=again and call.tool.skips_second_question,
    )
    # What holds a secret is neither shown nor kept.
    redact = services.redactor.redact
    return tuple(choice for choice in choices if redact(choice.sentence) == choice.sentence)
