"""Answers in every spelling, and choices that say what they store."""

from __future__ import annotations

import pytest

from toolrest.gate.approval.request import ANSWERS, Choice, Review, read_answer
from toolrest.policy.grants.key import GrantKey


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (True, "approved"),
        (False, "denied"),
        *((answer, answer) for answer in ANSWERS),
        ("once", "approved"),
        ("session", "approved_for_session"),
        ("project", "approved_for_project"),
        ("user", "approved_for_user"),
        ("deny", "denied"),
        ("accept", "approved"),
        ("acceptForSession", "approved_for_session"),
        ("decline", "denied"),
        ("cancel", "abort"),
        (Review("abort"), "abort"),
        (Choice("session", "…"), "approved_for_session"),
        (
            {"approved_execpolicy_amendment": {"proposed_execpolicy_amendment": ["make"]}},
            "approved_with_rule",
        ),
        ({"denied": {"rejection": "use make"}}, "denied"),
    ],
)
def test_answers_are_understood(given: object, answer: str) -> None:
    review = read_answer(given)
    assert review is not None
    assert review.answer == answer


@pytest.mark.parametrize("given", [None, 1, "yes please", "", {}, {"a": 1, "b": 2}, {"?": {}}, []])
def test_what_is_no_answer_is_none(given: object) -> None:
    assert read_answer(given) is None


def test_a_denial_carries_its_reason() -> None:
    assert read_answer({"denied": {"rejection": "use make"}}) == Review("denied", "use make")


def test_a_choice_tells_front_ends_what_it_stores() -> None:
    key = GrantKey("run", ("make",), "/w")
    told = Choice("session", key.sentence(), (key,)).to_json()
    assert told["answer"] == "approved_for_session"
    assert [GrantKey.from_json(stored) for stored in told["stores"]] == [key]
