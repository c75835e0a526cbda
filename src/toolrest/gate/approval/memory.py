"""The memory of approvals: grants that cover a call, and the choices that make new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.errors import ConfigError
from toolrest.gate.approval.grants import Grants, GrantScope, for_scope
from toolrest.gate.approval.request import ONCE, ApprovalRequest, Choice, Review
from toolrest.gate.decision.decide import Decision
from toolrest.policy.effects import Risk
from toolrest.policy.grants.key import GrantKey, quoted
from toolrest.policy.modes import Mode
from toolrest.policy.rules.amendment import saved_message
from toolrest.policy.terminal_safe import display_safe

RETRY = "; if the sandbox blocks it, it runs once more outside without another question"


class Remembering(NamedTuple):
    """The result of storing an approval: a note for the model, or a problem."""

    note: str = ""
    problem: str = ""


class Memory(Struct):
    """The grants and rules that one session's approvals consult and extend."""

    grants: Grants
    mode: Mode
    workspace: str
    project: str
    scopes: tuple[GrantScope, ...] = ("session",)
    """The scopes that are offered; without a home only the session's own."""
    save_rule: Callable[[Sequence[str], bool], str] | None = None
    """Adds a prefix to the user's rules (True: also outside the sandbox); returns the file."""

    def recall(self, decision: Decision, needs: Sequence[GrantKey], cwd: str) -> Decision:
        """The same decision, or ALLOW where grants cover all that the call needs."""
        if not needs or not self.consults(decision):
            return decision
        if self.mode == "auto" and any(key.kind in ("run", "call") for key in needs):
            return decision  # in this mode every command and server call asks
        found = self.grants.covers_all(needs, (cwd,))
        if found is None:
            return decision
        reason = f"granted before ({found.scope} {found.id})"
        return Decision(Answer.ALLOW, f"grant.{found.scope}", reason, leaves=decision.leaves)

    def consults(self, decision: Decision) -> bool:
        """Whether a grant can cover this decision."""
        return (
            decision.verdict == Answer.ASK
            and self.mode != "strict"
            and decision.what not in ("critical", "unread")
        )

    def choices(
        self,
        decision: Decision,
        keys: Sequence[GrantKey],
        risk: Risk,
        *,
        retries: bool = False,
        session_only: bool = False,
    ) -> tuple[Choice, ...]:
        """The choices of an approval, each with the grants that it stores."""
        offered = [Choice("once", f"{ONCE}{RETRY}" if retries else ONCE)]
        if keys and self.consults(decision) and risk < Risk.CRITICAL:
            session_only = session_only or keys[0].kind == "reach"
            scopes = ("session",) if session_only else self._offered(risk)
            offered += [self._kept(scope, keys) for scope in scopes]
            if keys[0].kind == "tool" and len(keys[0].words) == 1:
                session = self._kept("session", keys)
                offered[0] = Choice("once", f"this call, and {session.sentence}", session.stores)
        if decision.prefix and self.save_rule is not None and self.mode not in ("strict", "auto"):
            offered.append(_rule(decision.prefix, outside=decision.leaves))
        return tuple(offered)

    def _offered(self, risk: Risk) -> tuple[GrantScope, ...]:
        if self.mode != "auto":
            return self.scopes
        return ("session",) if risk <= Risk.WRITE else ()

    def _kept(self, scope: GrantScope, keys: Sequence[GrantKey]) -> Choice:
        stores = tuple(for_scope(key, scope, self.workspace, self.project) for key in keys)
        until = {
            "session": "until this session ends",
            "project": f"in every session in {display_safe(self.project)}",
            "user": "in every session",
        }[scope]
        allowed = "; ".join(key.sentence() for key in stores)
        return Choice(scope, f"{until}: {allowed}", stores)

    def keep(self, request: ApprovalRequest, review: Review) -> Remembering:
        """Store the grants or the rule of the chosen answer."""
        choice = request.choice(review.answer)
        if choice is None:
            return Remembering()
        try:
            if choice.prefix and self.save_rule is not None:
                self.save_rule(choice.prefix, request.leaves)
                return Remembering(note=saved_message(choice.prefix).replace("\n- ", " "))
            if choice.stores:
                scope = "session" if choice.scope == "once" else choice.scope
                self.grants.remember(choice.stores, cast("GrantScope", scope), request.tool)
        except ConfigError as error:
            return Remembering(problem=f"the approval counts for this call only: {error}")
        return Remembering()


def _rule(prefix: Sequence[str], *, outside: bool) -> Choice:
    sentence = (
        f"in every session and folder{', also outside the sandbox' * outside}: "
        f"commands that start with "
        f"{display_safe(quoted(prefix))} (a line in the rules file)"
    )
    return Choice("rule", sentence, prefix=tuple(prefix))
