"""Questions as MCP elicitations: what the person behind the client is shown, and what they said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolrest.gate.approval.approvals import ApprovalRequest, ReviewDecision
from toolrest.gate.approval.user_questions import NobodyThere, UserQuestions
from toolrest.policy.terminal_safe import display_safe
from toolrest.serve import user_form
from toolrest.serve.call_rounds import CallRound, FormQuestion

if TYPE_CHECKING:
    from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

_NO: dict[str, ReviewDecision] = {"deny": "denied", "abort": "abort"}
_MEANING = {"deny": "do not run it", "abort": "do not run it, and end the turn"}
_MOST = 200_000
"""Characters that a client can be expected to show. What would be cut is not asked at all."""


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Whether this client shows forms. A bare `elicitation` capability means forms."""
    asked = capabilities.elicitation if capabilities is not None else None
    return asked is not None and (asked.form is not None or asked.url is None)


class ThroughClient:
    """A session's way to whoever made the call that a question is about."""

    def __init__(self, running: Mapping[str, CallRound]) -> None:
        self._running = running

    async def __call__(self, request: ApprovalRequest) -> ReviewDecision | None:
        """Whether a call may run; None when nobody can be asked."""
        call = self._running.get(request.call_id)
        if call is None or not call.asks or not can_show(request):
            return None
        return await call.ask(approval(request))

    async def ask_user(self, asked: UserQuestions) -> dict[str, tuple[str, ...]] | None:
        """What they say to a model's questions; None when they would rather not."""
        call = self._running.get(asked.call_id)
        if call is None or not call.asks:
            raise NobodyThere
        return await call.ask(in_words(asked))


def approval(request: ApprovalRequest) -> FormQuestion[ReviewDecision]:
    """The question whether a call may run."""
    return FormQuestion(lambda: form(request), lambda result: answer(request, result))


def in_words(asked: UserQuestions) -> FormQuestion[dict[str, tuple[str, ...]] | None]:
    """What a model wants to know; raises for what no form may ask."""
    user_form.check(asked)

    def made() -> ElicitRequestFormParams:
        # Editors use this module, too, without the package `mcp`.
        from mcp_types import ElicitRequestFormParams

        schema = user_form.schema(asked)
        return ElicitRequestFormParams(message=user_form.words(asked), requested_schema=schema)

    def read(result: ElicitResult | None) -> dict[str, tuple[str, ...]] | None:
        if result is None or result.action != "accept":
            return None
        return user_form.answers(asked, result.content)

    return FormQuestion(made, read)


def can_show(request: ApprovalRequest) -> bool:
    """Whether all of a call can be shown: nobody says yes to what they have not seen."""
    texts = (*request.command, request.arguments, request.diff, request.reason, *request.keys)
    return sum(map(len, texts)) <= _MOST


def once(request: ApprovalRequest, plain: str) -> str:
    """What the smallest yes covers: for some tools it is also a yes to their later calls."""
    choice = request.choice("approved")
    return plain if choice is None or not choice.stores else choice.sentence


def form(request: ApprovalRequest) -> ElicitRequestFormParams:
    """The question about one call: what runs, what it touches, why it is asked."""
    # Editors use this module, too, without the package `mcp`.
    from mcp_types import ElicitRequestFormParams

    shown = {
        "Command": " ".join(request.command),
        "In": request.cwd,
        "For, says the model": request.purpose,
        "Arguments": "" if request.command else request.arguments,
        "Because": request.retry_reason or request.reason,
        "Touches": "; ".join(request.keys),
        "Diff": request.diff,
    }
    head = f"Toolrest asks before it runs {display_safe(request.tool)} ({request.risk.label})."
    lines = [f"{name}: {display_safe(text)}" for name, text in shown.items() if text]
    if request.leaves:
        lines.append("A yes runs it outside the sandbox.")
    names = {**{name: sentence for name, (_, sentence) in _yes(request).items()}, **_MEANING}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "enum": list(names),
                "enumNames": [display_safe(sentence) for sentence in names.values()],
            }
        },
        "required": ["decision"],
    }
    return ElicitRequestFormParams(message="\n".join([head, *lines]), requested_schema=schema)


def _yes(request: ApprovalRequest) -> dict[str, tuple[ReviewDecision, str]]:
    """Every way to say yes by its name in the form, and exactly what it covers."""
    words = once(request, "run this one call")
    least: dict[str, tuple[ReviewDecision, str]] = {"approve": ("approved", words)}
    more: dict[str, tuple[ReviewDecision, str]] = {
        choice.answer: (choice.answer, choice.sentence)
        for choice in request.choices
        if choice.scope != "once"
    }
    return {**least, **more}


def answer(request: ApprovalRequest, result: ElicitResult | None) -> ReviewDecision:
    """What a filled-in form says; anything but a clear yes is no."""
    if result is None or result.action != "accept":
        return "denied"
    chosen = str((result.content or {}).get("decision"))
    yes = _yes(request)
    return yes[chosen][0] if chosen in yes else _NO.get(chosen, "denied")
