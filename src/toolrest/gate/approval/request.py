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


ONCE = "this call only"
"""What the least approval grants, in a sentence."""


class Choice(Struct, frozen=True):
    """One way to approve a call, and exactly what it grants."""

    scope: Scope
    """`once`, `session`, `project`, `user` or `rule`."""
    sentence: str
    """What choosing it grants, in one sentence for the user."""
    stores: tuple[GrantKey, ...] = ()
    """The grants that it stores; none for `once` and `rule`."""
    prefix: tuple[str, ...] = ()
    """For `rule`: the first words of the command, appended to the rules file."""

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
    """The approval request for a call: what it would do, and the reason why it asks.

    An `on_ask` callback gets it and returns True, False, a `Choice`, a `Review` or the name of an
    answer (`"approved"`, `"denied"`, `"abort"`, …). An approval that is not among `choices` counts
    for this call only. Texts are redacted; the model wrote most of them, so escape them before they
    are shown at a terminal.
    """

    call_id: str
    """The id of the call, as the model gave it."""
    tool: str
    """The name of the tool."""
    arguments: str
    """The arguments as JSON text, or the raw text of a freeform tool."""
    reason: str
    """Why the call needs approval."""
    risk: Risk
    """The risk of the call."""
    effects: Effects = field(default_factory=Effects.none)
    """What the call will touch."""
    keys: tuple[str, ...] = ()
    """One approval key for each thing that it touches."""
    choices: tuple[Choice, ...] = ()
    """The ways to approve it."""
    rule: str = ""
    """The name of the rule or table row that asks."""
    command: tuple[str, ...] = ()
    """The argument vector of a command; empty for other calls."""
    cwd: str = ""
    """The folder that a command runs in."""
    diff: str = ""
    """The change of files as a unified diff; empty for other calls."""
    fingerprint: str = ""
    """Equal for the same tool with the same arguments."""
    leaves: bool = False
    """Whether approving means running outside the sandbox."""
    retry_reason: str | None = None
    """Set when the sandbox blocked the first attempt: why a retry outside is asked for."""
    turn_id: str = ""
    """The turn that the call belongs to."""
    agent: str = ""
    """The sub-agent that asks, as a path below the user's session."""
    purpose: str = ""
    """The purpose of the call as the model describes it, unchecked."""
    title: str = ""
    """The question in one sentence, where the tool words it and it says why it is asked."""
    notes: tuple[str, ...] = ()
    """The reason in plain sentences, where the tool words it."""
    changes: dict[str, Any] = field(default_factory=dict)
    """The change of files as events have it: each path with its change."""
    parsed_cmd: tuple[dict[str, Any], ...] = ()
    """What the parts of the command are for."""
    protected: str = ""
    """The protected name that the call writes, with the rule: no setting approves that."""
    exact: Exact | None = field(default=None, repr=False)
    """The arguments as they will run, not redacted: never show them."""

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
    """An approver's answer to a request, with a note."""

    answer: ReviewDecision
    """The answer."""
    note: str = ""
    """Why the call is denied, for the model."""
    setting: str = ""
    """The setting that answered in a person's place, such as `on_ask = "allow"`."""

    @property
    def approves(self) -> bool:
        """Whether the answer approves the call, for whatever scope."""
        return self.answer not in ("denied", "abort")


Answers: TypeAlias = "ReviewDecision | Choice | Review | bool | Mapping[str, Any] | str | None"
"""An approver's answer; None: it cannot ask about this call."""
Approver: TypeAlias = "Callable[[ApprovalRequest], Answers | Awaitable[Answers]]"
"""Answers one request after the other, or several at once: `on_ask=`.

It must answer what the request says and nothing wider: a scope counts only where it is among the
request's choices. It must not run the call or change its arguments; an exception or an answer of
another kind is a denial. Not promised: the order of requests, or that an answer is still needed
when it comes (the turn may have ended, another front end may have answered).
"""


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
