"""Approvals and questions as MCP elicitations, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolrest.gate.approval.request import ApprovalRequest, ReviewDecision
from toolrest.gate.approval.user_questions import NobodyThere, UserQuestions
from toolrest.serve import user_form
from toolrest.serve.call_rounds import CallRound, FormQuestion
from toolrest.timeline.approval import approval_form

if TYPE_CHECKING:
    from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

_DENIALS: dict[str, ReviewDecision] = {"deny": "denied", "abort": "abort"}
_MEANING = {"deny": "No", "abort": "No, and stop the turn"}
_MOST = 200_000
"""Characters that a client can be expected to show; a longer call is not asked about."""


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Whether this client shows forms. A bare `elicitation` capability means forms."""
    asked = capabilities.elicitation if capabilities is not None else None
    return asked is not None and (asked.form is not None or asked.url is None)


class ThroughClient:
    """A session's approver: the client that made the call."""

    def __init__(self, running: Mapping[str, CallRound]) -> None:
        self._running = running

    async def __call__(self, request: ApprovalRequest) -> ReviewDecision | None:
        """Ask for approval of a call; None when the client cannot be asked."""
        call = self._running.get(request.call_id)
        if call is None or not call.asks or not can_show(request):
            return None
        return await call.ask(approval(request))

    async def ask_user(self, asked: UserQuestions) -> dict[str, tuple[str, ...]] | None:
        """Ask a model's questions; None when they are declined."""
        call = self._running.get(asked.call_id)
        if call is None or not call.asks:
            raise NobodyThere
        return await call.ask(questions(asked))


def approval(request: ApprovalRequest) -> FormQuestion[ReviewDecision]:
    """The form that asks for approval of a call."""
    return FormQuestion(lambda: form(request), lambda result: answer(request, result))


def questions(asked: UserQuestions) -> FormQuestion[dict[str, tuple[str, ...]] | None]:
    """The form of a model's questions; raises for what no form may ask."""
    user_form.check(asked)

    def made() -> ElicitRequestFormParams:
        return _form_of(user_form.message(asked), user_form.schema(asked))

    def read(result: ElicitResult | None) -> dict[str, tuple[str, ...]] | None:
        if result is None or result.action != "accept":
            return None
        return user_form.answers(asked, result.content)

    return FormQuestion(made, read)


def can_show(request: ApprovalRequest) -> bool:
    """Whether all of a call can be shown, which an approval requires."""
    texts = (*request.command, request.arguments, request.diff, request.reason, *request.keys)
    said = (request.title, request.purpose, *request.notes)
    return sum(map(len, (*texts, *said))) <= _MOST


def form(request: ApprovalRequest) -> ElicitRequestFormParams:
    """The approval form of one call: what runs, what it touches, why it is asked."""
    names = {**{name: label for name, (_, label) in _approvals(request).items()}, **_MEANING}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "enum": list(names),
                "enumNames": list(names.values()),
            }
        },
        "required": ["decision"],
    }
    return _form_of("\n".join(approval_form(request).details), schema)


def _form_of(message: str, schema: dict[str, Any]) -> ElicitRequestFormParams:
    # Editors use this module, too, without the package `mcp`.
    from mcp_types import ElicitRequestFormParams

    return ElicitRequestFormParams(message=message, requested_schema=schema)


def _approvals(request: ApprovalRequest) -> dict[str, tuple[ReviewDecision, str]]:
    """Every way to approve, by its name in the form, with its label."""
    form = approval_form(request)
    found: dict[str, tuple[ReviewDecision, str]] = {}
    for option in (*form.options[:-1], *form.more):
        answer = request.answer_for(option.key)
        found["approve" if answer == "approved" else answer] = (answer, option.label)
    return found


def answer(request: ApprovalRequest, result: ElicitResult | None) -> ReviewDecision:
    """The decision in a filled-in form; anything but a clear approval is a denial."""
    if result is None or result.action != "accept":
        return "denied"
    chosen = str((result.content or {}).get("decision"))
    approvals = _approvals(request)
    return approvals[chosen][0] if chosen in approvals else _DENIALS.get(chosen, "denied")
