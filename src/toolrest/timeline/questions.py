"""Questions of a model and their answers, read from the JSON of events and stored items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolrest.timeline.calls import arguments_of
from toolrest.timeline.cells import CallCell, Question, QuestionCell


def asked_questions(values: Any) -> tuple[Question, ...]:
    """The questions of an event or of a call's arguments; empty where it is none of these."""
    rows = values if isinstance(values, list) else []
    found = [one for row in rows if isinstance(row, dict) and (one := _question(row)) is not None]
    return tuple(found) if len(found) == len(rows) else ()


def _question(row: dict[str, Any]) -> Question | None:
    name, header, text = row.get("id"), row.get("header"), row.get("question")
    if not (isinstance(name, str) and isinstance(header, str) and isinstance(text, str)):
        return None
    options = row.get("options")
    rows = options if isinstance(options, list) else []
    given = (one.get("label") for one in rows if isinstance(one, dict))
    labels = tuple(label for label in given if isinstance(label, str))
    return Question(name, header, text, labels, row.get("isSecret") is True)


def given_answers(output: str) -> dict[str, tuple[str, ...]]:
    """The answers in the output of such a call, by the questions' ids."""
    rows = arguments_of(output).get("answers")
    found = {}
    for name, row in rows.items() if isinstance(rows, dict) else ():
        texts = row.get("answers") if isinstance(row, dict) else None
        if isinstance(texts, list):
            found[name] = tuple(text for text in texts if isinstance(text, str))
    return found


def question_cell(call: CallCell, questions: Iterable[Question]) -> QuestionCell:
    """The cell of a call that has turned out to be questions."""
    same = {name: getattr(call, name) for name in call.__struct_fields__}
    return QuestionCell(**same, questions=tuple(questions))


def answered(cell: CallCell) -> None:
    """Note the answers once the call has its output."""
    if isinstance(cell, QuestionCell):
        cell.answers = given_answers(cell.result)


def shown_answers(cell: QuestionCell, question: Question) -> tuple[str, ...]:
    """The answers to one of its questions; a secret one is not shown."""
    answers = cell.answers.get(question.id, ())
    return ("(not shown)",) if answers and question.is_secret else answers
