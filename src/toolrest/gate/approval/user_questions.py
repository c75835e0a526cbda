"""A model's questions to the user, and the front end that answers them.

They go where approvals go: to a front end that can take text. Without one, only the answers in
the setting `user_input.answers` count, and no call waits.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass  # noqa: TID251 - public values
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

from toolrest.errors import RespondToModel
from toolrest.events import RequestUserInput
from toolrest.items import JSONObject

if TYPE_CHECKING:
    from toolrest.gate.approval.waiting import WaitingRequests
    from toolrest.gate.bus import Bus

UNAVAILABLE = (
    "request_user_input is unavailable in Default mode: no user can answer here. Decide with what "
    "you know and say so, or end your turn with the question. The user can give answers "
    "beforehand with the setting user_input.answers."
)
CANCELLED = "request_user_input was cancelled before receiving a response"


class NobodyThere(Exception):
    """Raised by a front end that has no user who can answer with text."""


@dataclass(frozen=True, slots=True)
class UserOption:
    """One of the answers to choose from."""

    label: str
    """The answer."""
    description: str = ""
    """What choosing it means."""


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """One question of a model to the user. An answer need not be one of the options."""

    id: str
    """The id that the answers name."""
    header: str
    """A title of a few words."""
    question: str
    """The question."""
    options: tuple[UserOption, ...] = ()
    """The answers to choose from; empty for a question that takes text."""
    is_secret: bool = False
    """Whether the answer is hidden while it is typed, and kept out of events and files."""

    def to_json(self) -> JSONObject:
        """JSON for events and clients."""
        options = [{"label": o.label, "description": o.description} for o in self.options]
        return {
            "id": self.id,
            "header": self.header,
            "question": self.question,
            "isOther": True,
            "isSecret": self.is_secret,
            "options": options or None,
        }


@dataclass(frozen=True, slots=True)
class UserQuestions:
    """The questions of one call, as an `on_question` callback gets them."""

    call_id: str
    turn_id: str
    questions: tuple[UserQuestion, ...]


UserAnswers: TypeAlias = "Mapping[str, str | Sequence[str]] | None"
"""Answers by the question's id; None when the user cancelled."""
OnQuestion: TypeAlias = "Callable[[UserQuestions], UserAnswers | Awaitable[UserAnswers]]"


class QuestionChannel:
    """The session's channel for questions that the user answers with text."""

    def __init__(
        self,
        bus: Bus,
        waiting: WaitingRequests,
        on_question: OnQuestion | None,
        answers: Mapping[str, str] | None = None,
    ) -> None:
        self._bus = bus
        self._on_question = on_question
        self._answers = dict(answers or {})
        self._waiting = waiting

    async def ask(self, asked: UserQuestions) -> dict[str, tuple[str, ...]]:
        """Every question's answers; RespondToModel when the user cannot or will not answer."""
        if self._on_question is None:
            return self._configured(asked)
        shown = [question.to_json() for question in asked.questions]
        self._bus.emit(
            RequestUserInput(call_id=asked.call_id, questions=shown, turn_id=asked.turn_id)
        )
        try:
            given: Any = self._on_question(asked)
            if inspect.isawaitable(given):
                given = await self._waiting.first(asked, given)
        except NobodyThere:
            return self._configured(asked)
        except RespondToModel:
            raise
        except Exception as error:
            message = f"asking the user failed: {type(error).__name__}: {error}"
            raise RespondToModel(message) from error
        if given is None:
            raise RespondToModel(CANCELLED)
        return {question.id: _texts(given, question.id) for question in asked.questions}

    def _configured(self, asked: UserQuestions) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for question in asked.questions:
            answer = self._answer(question.id)
            if answer is None:
                raise RespondToModel(UNAVAILABLE)
            found[question.id] = (answer,)
        return found

    def _answer(self, identity: str) -> str | None:
        if identity in self._answers:
            return self._answers[identity]
        matching = (text for glob, text in self._answers.items() if fnmatchcase(identity, glob))
        return next(matching, None)


def _texts(given: Any, identity: str) -> tuple[str, ...]:
    value = given.get(identity, ()) if isinstance(given, Mapping) else None
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise RespondToModel(
            f"asking the user failed: the front end returned no text for the question {identity}"
        )
    return tuple(value)
