"""The decision on a call by its strictest effect, from the table of `policy/modes.py`.

A hidden path is denied in every mode, and so is a write that the path policy refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.policy.effects import Effects, Risk
from toolrest.policy.grants.key import GrantKey
from toolrest.policy.modes import Mode, Row, need

if TYPE_CHECKING:
    from toolrest.gate.session import Ground
    from toolrest.policy.rules.overrides import Overrides


class Decision(Struct, frozen=True):
    """The verdict on one call, the rule that gave it and the reason."""

    verdict: Answer
    rule: str
    reason: str = ""
    leaves: bool = False
    """Allowing or approving this means running outside the sandbox; the reason says so."""
    tries_inside: bool = False
    """It leaves only once the sandbox has blocked what the reason names."""
    what: Row = "execute"
    """The row of the table that decided; it limits how far an approval may reach."""
    prefix: tuple[str, ...] = ()
    """The command prefix that an approval could add to the user's rules file, if any."""
    keys: tuple[GrantKey, ...] | None = None
    """The grant keys of an approval, where the tool knows better than its effects."""
    title: str = ""
    """The question in one sentence, where the tool words it."""
    notes: tuple[str, ...] = ()
    """The reason in plain sentences for a person, where the question does not say it all."""
    by_name: bool = False
    """The user allowed this very tool; that it may reach out after external content is known."""


_ALLOW_READ = Decision(Answer.ALLOW, "table.read")


class Decider:
    """The decision by effects. Explicit denies come first, so no mode can lift them."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._files = ground.files
        self._full_access = ground.settings.sandbox_mode == "danger-full-access"
        self._network = ground.settings.sandbox_workspace_write.network_access
        self.overrides: Overrides | None = ground.known.overrides
        """The user's own settings for single tools and servers."""

    @property
    def mode(self) -> Mode:
        """The approval policy in force: that of the settings, or of the session's mode."""
        return self._ground.approval_policy

    @property
    def retries_outside(self) -> bool:
        """Whether a call that the sandbox blocked may ask to run once more outside (D-27)."""
        return self.mode in ("untrusted", "on-failure")

    def decide(self, effects: Effects, risk: Risk) -> Decision:
        """The verdict on a call with these effects and this risk."""
        if effects.reads or effects.writes:
            denied = self._paths(effects)
            if denied is not None:
                return denied
        if risk == Risk.READ and self.mode != "strict" and not effects.is_unknown:
            return _ALLOW_READ
        what, answer = self._strictest(effects, risk)
        if answer == Answer.ALLOW:
            return Decision(Answer.ALLOW, f"table.{what}", what=what)
        leaves = effects.escalates is not None
        reason = self._reason(effects, risk, what)
        return Decision(answer, f"table.{what}", reason, leaves=leaves, what=what)

    def _strictest(self, effects: Effects, risk: Risk) -> tuple[Row, Answer]:
        """The row with the strictest answer; of several the last, which is the gravest."""
        found: tuple[Row, Answer] = ("nothing", Answer.ALLOW)
        for what in self._rows(effects, risk):
            answer = need(what, self.mode, sandboxed=not self._full_access)
            if answer >= found[1]:
                found = (what, answer)
        return found

    def _rows(self, effects: Effects, risk: Risk) -> list[Row]:
        rows: list[Row] = []
        if effects.reads or effects.consults:
            rows.append("read")
        if effects.writes or effects.connects or risk == Risk.WRITE:
            rows.append("write")
        if risk >= Risk.EXECUTE or effects.is_unknown:
            rows.append("confined" if effects.confined else "execute")
        if effects.escalates is not None or self._off_limits(effects):
            rows.append("leave")
        if risk == Risk.CRITICAL:
            rows.append("critical")
        return rows

    def _off_limits(self, effects: Effects) -> bool:
        return bool(effects.connects) and not self._network and not effects.confined

    def _paths(self, effects: Effects) -> Decision | None:
        for path in effects.reads:
            reason = self._files.read_denied(path)
            if reason is not None:
                return Decision(Answer.DENY, "path.read", reason)
        for path in () if effects.judged else effects.writes:
            reason = self._files.write_denied(path)
            if reason is not None:
                return Decision(Answer.DENY, "path.write", reason)
        return None

    def _reason(self, effects: Effects, risk: Risk, what: Row) -> str:
        if what == "leave" and effects.escalates is None:
            hosts = ", ".join(effects.connects)
            return (
                f"it connects to {hosts}, and the network is off "
                "(sandbox_workspace_write.network_access = true turns it on)"
            )
        return _why(effects, risk)


def _why(effects: Effects, risk: Risk) -> str:
    if effects.critical is not None:
        return f"critical: {effects.critical}"
    if effects.escalates is not None:
        return effects.escalates or "it asks to run outside the sandbox"
    if effects.is_unknown:
        return "it may change things (it declares no effects)"
    touched = [
        *(f"reads {path}" for path in effects.reads[:3] if risk == Risk.READ),
        *(f"consults {name}" for name in effects.consults[:3]),
        *(f"writes {path}" for path in effects.writes[:3]),
        *(f"runs {' '.join(argv)}" for argv in effects.runs[:3]),
        *(f"connects to {host}" for host in effects.connects[:3]),
        *(f"calls {name}" for name in effects.calls[:3]),
    ]
    return f"risk {risk.label}: {', '.join(touched) or 'as its author declared'}"
