"""May this command run? The rules, the mode, the sandbox and earlier answers say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.gate.decision.decide import Decision
from toolrest.records import replace
from toolrest.policy.grants.command_keys import command_keys, granted_by
from toolrest.policy.modes import What
from toolrest.policy.verdict.verdict import Kind
from toolrest.policy.verdict.outcome import (
    Forbidden,
    Granted,
    NeedsApproval,
    Outcome,
    Setting,
    Skip,
    outcome,
)
from toolrest.tools.shell._merge_planted import planted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolrest.gate.context import Context
    from toolrest.policy.grants.key import GrantKey
    from toolrest.policy.verdict.verdict import Verdict
    from toolrest.tools.shell.command_tool import Escalation

_GRAVE: dict[str, What] = {"dangerous": "critical", "unknown": "unread"}


def setting_of(args: Escalation, ctx: Context) -> Setting:
    """What the session and the call say, for the table."""
    return Setting(
        ctx.approval_policy,
        ctx.files.mode,
        network=ctx.runner.confinement.network != "off",
        permissions="require_escalated" if args.asks_to_leave() else "use_default",
    )


def decision_on(verdict: Verdict, args: Escalation, ctx: Context) -> Decision:
    """The decision on a command line."""
    setting = setting_of(args, ctx)
    found = outcome(verdict, ctx.rules, setting, prefix_rule=args.prefix_rule)
    required = found.requirement
    if isinstance(required, Forbidden):
        words = f"{required.reason} ({required.detail})" if required.detail else required.reason
        return Decision("deny", f"command.{_row(found)}", words)
    if isinstance(required, Skip):
        # Only where rules allow every single command does the first attempt leave the sandbox.
        # Nor does it where a name means a file that the project or a tool has put there.
        leaves = required.bypass_sandbox and ctx.runner.is_confined and not planted(verdict, ctx)
        return Decision("allow", f"command.{_row(found)}", leaves=leaves)
    return _asked(verdict, found, required, setting, args, ctx)


def _asked(
    verdict: Verdict,
    found: Outcome,
    required: NeedsApproval,
    setting: Setting,
    args: Escalation,
    ctx: Context,
) -> Decision:
    rows = [decided.row for decided in found.decided]
    leaves = ctx.runner.is_confined and found.leaves
    justified = args.justification if setting.escalated else None
    words = justified or required.reason or required.detail or "it asks to run"
    where = " (it would run outside the sandbox)" if leaves and not setting.escalated else ""
    question = Decision(
        "ask",
        f"command.{_row(found)}",
        words + where,
        leaves=leaves,
        what=next((_GRAVE[row] for row in rows if row in _GRAVE), "execute"),
        prefix=_lasting(found, required.amendment or ()),
        keys=(),
    )
    memory = ctx.memory
    if memory is None or not memory.consults(question) or setting.mode == "auto":
        return question  # in `auto`, whatever runs something asks every time

    def real(cwds: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(ctx.files.canonical, cwds))

    def allowed(granted: Granted) -> bool:
        again = outcome(verdict, ctx.rules, setting, granted=granted)
        return isinstance(again.requirement, Skip)

    # A yes for a folder is none for where a link in it leads.
    def stored(need: GrantKey, cwds: Sequence[str]) -> bool:
        return memory.grants.covering(need, real(cwds)) is not None

    kept = not (leaves and planted(verdict, ctx))
    if kept and allowed(granted_by(stored, outside=leaves)):
        return Decision("allow", "grant", "granted before", leaves=leaves)
    keys = command_keys(found, workspace=ctx.workspace, outside=leaves)
    # What is offered must be what lets the same line through next time, or it is not offered.
    offered = granted_by(
        lambda need, cwds: any(k.covers(need, real(cwds)) for k in keys), outside=leaves
    )
    return replace(question, keys=keys if allowed(offered) else ())


def _lasting(found: Outcome, prefix: tuple[str, ...]) -> tuple[str, ...]:
    """The prefix that may become a rule: not of a command whose next word is one more file."""
    touching = {d.segment.argv for d in found.decided if d.segment.kind == Kind.TOUCHES}
    return () if any(argv[: len(prefix)] == prefix for argv in touching) else prefix


def _row(found: Outcome) -> str:
    """The row or rule that decided: of the strictest segments the first."""
    worst = max(found.decided, key=lambda decided: decided.decision, default=None)
    return worst.row if worst is not None else "nothing"
