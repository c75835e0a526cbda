"""The approval request, the choices it offers, and the approver's review."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field  # noqa: TID251 - public values
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from toolrest.policy.effects import Effects, Risk
from toolrest.policy.grants.key import GrantKey

ReviewDecision: TypeAlias = Literal[
    "approved",
    "approved_for_session",
    "approved_for_project",
    "approved_for_user",
    "approved_with_rule",
    "denied",
    "abort",
]
ANSWERS: tuple[ReviewDecision, ...] = get_args(ReviewDecision)
Scope: TypeAlias = Literal["once", "session", "project", "user", "rule"]

SCOPES: dict[Scope, ReviewDecision] = {
    "once": "approved",
    "session": "approved_for_session",
    "project": "approved_for_project",
    "user": "approved_for_user",
    "rule": "approved_with_rule",
}
"""The scopes of an approval, each with its answer."""

_SPELLINGS: dict[str, ReviewDecision] = {
    **dict(SCOPES.items()),
    "deny": "denied",
    "approved_execpolicy_amendment": "approved_with_rule",
    "accept": "approved",
    "acceptForSession": "approved_for_session",
    "acceptWithExecpolicyAmendment": "approved_with_rule",
    "decline": "denied",
    "cancel": "abort",
}


class Choice(Struct, frozen=True):
    """One way to approve: the answer that chooses it, and exactly what is then granted.

    `stores` are the grants of `sentence`; a `rule` choice appends `prefix` to the rules file.
    """

    scope: Scope
    sentence: str
    stores: tuple[GrantKey, ...] = ()
    prefix: tuple[str, ...] = ()

    @property
    def answer(self) -> ReviewDecision:
        """The answer that an approver returns to choose this."""
        return SCOPES[self.scope]

    def to_json(self) -> dict[str, Any]:
        """JSON for front ends in other processes."""
        return {
            "scope": self.scope,
            "answer": self.answer,
            "sentence": self.sentence,
            "stores": [key.to_json() for key in self.stores],
            "prefix": list(self.prefix),
        }


class Exact(Struct, frozen=True):
    """The arguments as they will run, not redacted: for running the call later, not for show.

    `files` are the files that it would run, each with a stamp of its content.
    """

    text: str
    freeform: bool = False
    files: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class ApprovalRequest:
    """The approval request for a call: its effects, and the reason why it asks.

    `choices` are the ways to approve; an approval that is not among them counts for this call
    only. `retry_reason` is set when the sandbox has blocked the first attempt. `leaves`: approving
    means running outside the sandbox.
    """

    call_id: str
    tool: str
    arguments: str
    reason: str
    risk: Risk
    effects: Effects = field(default_factory=Effects.none)
    keys: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    rule: str = ""
    command: tuple[str, ...] = ()
    cwd: str = ""
    diff: str = ""
    fingerprint: str = ""
    leaves: bool = False
    retry_reason: str | None = None
    turn_id: str = ""
    agent: str = ""
    """The sub-agent that asks, as a path below the user's session."""
    purpose: str = ""
    """The purpose of the call as the model describes it, unchecked."""
    changes: dict[str, Any] = field(default_factory=dict)
    parsed_cmd: tuple[dict[str, Any], ...] = ()
    """What the parts of the command are for."""
    protected: str = ""
    """The protected name that the call writes, with the rule: no setting approves that."""
    exact: Exact | None = field(default=None, repr=False)

    def answer_for(self, scope: object) -> ReviewDecision:
        """The answer that approves with this scope; ValueError where it is not offered."""
        if scope == "once":
            return "approved"
        for choice in self.choices:
            if choice.scope == scope:
                return choice.answer
        raise ValueError(f"the scope {scope!r} is not offered for this call")

    def choice(self, answer: ReviewDecision) -> Choice | None:
        """The choice that an answer takes, if it was offered."""
        return next((choice for choice in self.choices if choice.answer == answer), None)


@dataclass(frozen=True, slots=True)
class Review:
    """An approver's answer; `note` is the reason of a denial, for the model."""

    answer: ReviewDecision
    note: str = ""

    @property
    def approves(self) -> bool:
        """Whether the answer approves the call, for whatever scope."""
        return self.answer not in ("denied", "abort")


Answers: TypeAlias = "ReviewDecision | Choice | Review | bool | Mapping[str, Any] | str | None"
"""An approver's answer; None: it cannot ask about this call."""
Approver: TypeAlias = "Callable[[ApprovalRequest], Answers | Awaitable[Answers]]"


def read_answer(value: object) -> Review | None:
    """The review that an approver's answer means: a bool, an answer's name, a Choice, a Review, or
    Codex's own form of them (`{"denied": {"rejection": …}}`); None for anything else.
    """
    if isinstance(value, bool):
        return Review("approved" if value else "denied")
    if isinstance(value, Choice):
        return Review(value.answer)
    if isinstance(value, Review):
        return value if value.answer in ANSWERS else None
    if isinstance(value, Mapping) and len(value) == 1:
        name, inner = next(iter(value.items()))
        note = inner.get("rejection", "") if isinstance(inner, Mapping) else ""
        found = read_answer(name) if isinstance(name, str) else None
        return Review(found.answer, str(note)) if found else None
    if isinstance(value, str):
        answer = _SPELLINGS.get(value, value)
        return Review(answer) if answer in ANSWERS else None
    return None
