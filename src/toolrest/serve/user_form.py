"""The form of a model's questions, for clients that show forms, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolrest.errors import RespondToModel
from toolrest.gate.approval.user_questions import NobodyThere, UserQuestion, UserQuestions
from toolrest.items import JSONObject
from toolrest.policy.terminal_safe import display_safe

_MOST = 20_000
"""Characters that a user can be expected to read before answering."""

NO_SECRETS = (
    "a secret cannot be asked for through this client: forms are no place for one. Tell the user "
    "where to put it themselves (an environment variable, a file) and go on without it."
)


def check(asked: UserQuestions) -> None:
    """Raise the error for the model if no form may have these questions."""
    if any(question.is_secret for question in asked.questions):
        raise RespondToModel(NO_SECRETS)
    if len(message(asked)) > _MOST:
        raise NobodyThere


def message(asked: UserQuestions) -> str:
    """All questions, as text above the form: some clients show nothing else."""
    lines = ["The model asks:"]
    for question in asked.questions:
        lines.append(f"{display_safe(question.header)}: {display_safe(question.question)}")
        for option in question.options:
            lines.append(f"- {display_safe(option.label)}: {display_safe(option.description)}")
    return "\n".join(lines)


def schema(asked: UserQuestions) -> JSONObject:
    """The form's schema: a choice and a free line for each question; one of them is enough."""
    fields: dict[str, Any] = {}
    for number, question in enumerate(asked.questions, 1):
        fields[f"choice_{number}"] = {
            "type": "string",
            "title": display_safe(question.header),
            "description": display_safe(question.question),
            "enum": list(_choices(question)),
        }
        fields[f"other_{number}"] = {
            "type": "string",
            "title": f"{display_safe(question.header)}: another answer",
            "description": "Counts instead of the choice, if you write one.",
        }
    return {"type": "object", "properties": fields, "required": []}


def answers(asked: UserQuestions, content: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    """The answers in a filled-in form; empty where a question was left out."""
    filled = content or {}
    return {
        question.id: _answer(question, filled, number)
        for number, question in enumerate(asked.questions, 1)
    }


def _answer(question: UserQuestion, filled: Mapping[str, Any], number: int) -> tuple[str, ...]:
    own, chosen = filled.get(f"other_{number}"), filled.get(f"choice_{number}")
    if isinstance(own, str) and own.strip():
        return (own.strip(),)
    label = _choices(question).get(chosen) if isinstance(chosen, str) else None
    return () if label is None else (label,)


def _choices(question: UserQuestion) -> dict[str, str]:
    """The labels as they are shown, and as the model wrote them."""
    return {display_safe(option.label): option.label for option in question.options}
