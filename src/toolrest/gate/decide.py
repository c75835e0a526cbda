"""May this call run? One small table over risk, mode and paths.

| risk    | strict | auto, untrusted | on-request, on-failure  | never | danger-full-access |
|---------|--------|-----------------|-------------------------|-------|--------------------|
| none    | allow  | allow           | allow                   | allow | allow              |
| read    | ask    | allow           | allow                   | allow | allow              |
| write   | ask    | ask             | allow inside the roots  | same  | allow              |
| connect | ask    | ask             | ask, allow with network | deny  | allow              |
| confined| ask    | ask             | allow in the sandbox    | same  | allow              |
| execute | ask    | ask             | ask                     | allow | allow              |
| critical| ask    | ask             | ask                     | deny  | ask                |

The last column is for on-request, on-failure and never; strict, auto and untrusted ask there too.
A hidden path is denied in every mode, and so is a write that the path policy refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from toolrest.events import Verdict
from toolrest.policy.effects import Effects, Risk

if TYPE_CHECKING:
    from toolrest.policy.paths import PathPolicy

ApprovalMode = Literal["untrusted", "on-failure", "on-request", "never", "auto", "strict"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one call, the rule that gave it and the reason in words."""

    verdict: Verdict
    rule: str
    reason: str = ""
    leaves: bool = False
    """A yes to this question is a yes to running outside the sandbox; the reason says so."""


_ALLOW_READ = Decision("allow", "risk.read")


@dataclass(slots=True)
class Decider:
    """Decides by effects. Explicit denies come first, so no mode can lift them."""

    files: PathPolicy
    mode: ApprovalMode = "on-request"
    full_access: bool = False
    network: bool = False

    @property
    def retries_outside(self) -> bool:
        """Whether a call that the sandbox blocked may ask to run once more outside (D-27)."""
        return self.mode in ("untrusted", "on-failure")

    def decide(self, effects: Effects, risk: Risk) -> Decision:
        """The verdict on a call with these effects and this risk."""
        return self._denied(effects) or self._asked(effects, risk) or self._allowed(effects, risk)

    def _denied(self, effects: Effects) -> Decision | None:
        if effects.reads or effects.writes:
            return self._paths(effects)
        return None

    def _asked(self, effects: Effects, risk: Risk) -> Decision | None:
        """What asks whatever the sandbox is."""
        if risk == Risk.READ and not (self.mode == "strict" and effects.reads):
            return _ALLOW_READ
        if self.mode in ("untrusted", "auto", "strict"):
            leaves = effects.escalates is not None
            return Decision("ask", f"mode.{self.mode}", _why(effects, risk), leaves=leaves)
        if risk == Risk.CRITICAL:
            verdict: Verdict = "deny" if self.mode == "never" else "ask"
            return Decision(verdict, "risk.critical", _why(effects, risk))
        return None

    def _allowed(self, effects: Effects, risk: Risk) -> Decision:
        if self.full_access:
            return Decision("allow", "sandbox.danger-full-access")
        if effects.connects and not self.network and not effects.confined:
            return self._no_network(effects)
        if effects.escalates is not None:
            return Decision("ask", "sandbox.escalate", _why(effects, risk), leaves=True)
        if effects.confined:
            return Decision("allow", "sandbox.confined")
        if risk == Risk.WRITE:
            return Decision("allow", "path.writable")
        if self.mode == "never":
            return Decision("allow", "mode.never")
        return Decision("ask", f"mode.{self.mode}", _why(effects, risk))

    def _paths(self, effects: Effects) -> Decision | None:
        for path in effects.reads:
            reason = self.files.read_denied(path)
            if reason is not None:
                return Decision("deny", "path.read", reason)
        for path in () if effects.judged else effects.writes:
            reason = self.files.write_denied(path)
            if reason is not None:
                return Decision("deny", "path.write", reason)
        return None

    def _no_network(self, effects: Effects) -> Decision:
        verdict: Verdict = "deny" if self.mode == "never" else "ask"
        hosts = ", ".join(effects.connects)
        reason = (
            f"it connects to {hosts}, and the network is off "
            "(sandbox_workspace_write.network_access = true turns it on)"
        )
        return Decision(verdict, "network.off", reason)


def _why(effects: Effects, risk: Risk) -> str:
    if effects.critical is not None:
        return f"critical: {effects.critical}"
    if effects.escalates is not None:
        return effects.escalates or "it asks to run outside the sandbox"
    if effects.is_unknown:
        return "it declares no effects, so anything may happen"
    touched = [
        *(f"reads {path}" for path in effects.reads[:3] if risk == Risk.READ),
        *(f"writes {path}" for path in effects.writes[:3]),
        *(f"runs {' '.join(argv)}" for argv in effects.runs[:3]),
        *(f"connects to {host}" for host in effects.connects[:3]),
        *(f"calls {name}" for name in effects.calls[:3]),
    ]
    return f"risk {risk.label}: {', '.join(touched) or 'as its author declared'}"
