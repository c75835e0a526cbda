"""The form of an answer: what is not of it is named, whatever the model writes."""

from __future__ import annotations

import pytest

from toolrest.agent.conversation.answer_form import AnswerForm


@pytest.mark.parametrize("depth", [300, 100_000])
def test_an_answer_that_is_nested_deeply_is_a_wrong_one(depth: int) -> None:
    problem = AnswerForm.of_schema({"type": "object"}).check("[" * depth + "]" * depth)
    assert problem is not None
    assert "recursion" in problem.lower()
