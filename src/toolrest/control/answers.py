"""Answers to what waits in a session: how it is shown elsewhere, and which answers count."""

from __future__ import annotations

import hashlib
import json
from time import monotonic
from typing import Any

from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.gate.approval.user_questions import UserQuestions
from toolrest.gate.approval.waiting import WaitingRequest
from toolrest.gate.output.secret_values import can_hide
from toolrest.items import JSONObject
from toolrest.timeline.approval import request_json

LONGEST_MESSAGE = 200_000
_LONGEST_NOTE = 4000


def waiting_json(waiting: WaitingRequest, workspace: str) -> JSONObject:
    """A request as a front end in another process shows it."""
    asked = waiting.asked
    common = {"id": waiting.id, "pin": pin_of(waiting), "created": waiting.created}
    if isinstance(asked, ApprovalRequest):
        return {**common, "kind": "approval", **request_json(asked, workspace)}
    questions = [question.to_json() for question in asked.questions]
    return {**common, "kind": "question", "questions": questions}


def pin_of(waiting: WaitingRequest) -> str:
    """The hash of what is shown: an answer counts for that and for nothing else."""
    asked = waiting.asked
    if isinstance(asked, ApprovalRequest):
        shown: Any = request_json(asked)
    else:
        shown = [question.to_json() for question in asked.questions]
    return hashlib.sha256(json.dumps([waiting.id, shown]).encode()).hexdigest()


def answer_of(waiting: WaitingRequest, request: JSONObject, inert: float) -> Any:
    """The answer that a request gives; ValueError for none, and before `inert` seconds."""
    asked = waiting.asked
    if isinstance(asked, UserQuestions):
        return _texts(asked, request.get("answers"))
    if request.get("approve") is not True:
        return Review("denied", str(request.get("note", ""))[:_LONGEST_NOTE])
    answer = asked.answer_for(request.get("scope", "once"))
    if monotonic() - waiting.appeared < inert:
        raise ValueError("this has only just appeared; read it first")
    return Review(answer)


def _texts(asked: UserQuestions, answers: object) -> dict[str, tuple[str, ...]] | None:
    """Answers by the question's id; None to decline."""
    if answers is None:
        return None
    if not isinstance(answers, dict):
        raise ValueError("answers is an object: texts by the question's id, or null")
    found: dict[str, tuple[str, ...]] = {}
    for question in asked.questions:
        texts = answers.get(question.id)
        if not isinstance(texts, list) or not texts or not all(_is_text(text) for text in texts):
            raise ValueError(f"the question {question.id} has no answer")
        if question.is_secret and not all(map(can_hide, texts)):
            raise ValueError("that is too short (or a path) to be kept out of logs")
        found[question.id] = tuple(texts)
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= LONGEST_MESSAGE
