"""An approval request for a person: everything that it takes to decide, and the keys to answer.

What is shown is what will run, escaped so that it cannot deceive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolrest.gate.approval.request import ApprovalRequest, Choice, Review
from toolrest.gate.approval.user_questions import UserQuestion
from toolrest.items import JSONObject
from toolrest.policy.effects import Risk
from toolrest.timeline.calls import command_line
from toolrest.timeline.text import block, shown

_LETTERS = {"once": "y", "session": "s", "project": "p", "user": "a", "rule": "r"}
_VERBS = {
    "write": "writes",
    "run": "runs",
    "connect": "connects to",
    "call": "calls",
    "unknown": "does not say what it touches: anything may happen",
}


def describe(request: ApprovalRequest, *, diff: bool = True) -> Iterator[str]:
    """Everything a person needs to decide, line by line, nothing left out.

    With `diff=False` the changes are shown elsewhere.
    """
    where = ", OUTSIDE THE SANDBOX" if request.leaves else ""
    plain = f"{shown(request.tool)} wants to run ({request.risk.label}{where}):"
    yield shown(request.title) or plain
    if request.agent:
        yield f"  asked by:  the sub-agent {shown(request.agent)}"
    if request.command:
        yield "  command:"
        yield from block(command_line(request.command))
    if request.cwd:
        yield f"  in:        {shown(request.cwd)}"
    if request.purpose:
        yield f"  for:       {shown(request.purpose)} (says the model)"
    yield from _why(request)
    # Never read off the diff's text: a changed line could pass for the name of a file.
    changed = request.changes if diff and request.diff else {}
    for key in request.keys:
        kind, _, rest = key.partition(":")
        if (kind != "run" or not request.command) and not (kind == "write" and rest in changed):
            yield f"  it         {_VERBS.get(kind) or shown(kind)} {shown(rest)}".rstrip()
    if request.diff and diff:
        yield "  changes:"
        yield from block(request.diff.rstrip("\n"))
    if not request.command and not request.diff:
        yield f"  arguments: {shown(request.arguments)}"


def _why(request: ApprovalRequest) -> Iterator[str]:
    if not request.title:
        yield f"  because:   {shown(request.reason)}"
    if request.retry_reason:
        yield f"  again:     {shown(request.retry_reason)}"


def request_json(request: ApprovalRequest) -> JSONObject:
    """An approval request for a front end in another process: all that a person is shown."""
    return {
        "tool": request.tool,
        "risk": request.risk.label,
        "critical": request.risk >= Risk.CRITICAL,
        "leaves": request.leaves,
        "lines": list(describe(request)),
        "choices": [choice.to_json() for choice in request.choices],
    }


def offered(request: ApprovalRequest) -> list[tuple[str, str]]:
    """What can be typed to approve, each with what is then granted. Critical calls want a word."""
    return [
        (_key(choice, request), f"{choice.scope}: {shown(choice.sentence)}")
        for choice in _choices(request)
    ]


DENYING = (("n", "no (what you write after it is sent to the model)"), ("q", "no, end the turn"))


def typed_review(request: ApprovalRequest, typed: str, *, cut: bool = False) -> Review:
    """The review that a typed line means; anything but a clear approval denies.

    With `cut` the person has not seen all of the request, and cannot approve it.
    """
    key, _, note = typed.strip().partition(" ")
    key = key.lower()
    if key in ("q", "quit"):
        return Review("abort")
    if key in ("n", "no"):
        return Review("denied", note.strip())
    if cut or note:
        return Review("denied")
    for choice in _choices(request):
        keys = {_key(choice, request)}
        if request.risk != Risk.CRITICAL:
            keys |= {choice.scope, *(("yes",) if choice.scope == "once" else ())}
        if key in keys:
            return Review(choice.answer)
    return Review("denied")


def _choices(request: ApprovalRequest) -> tuple[Choice, ...]:
    return request.choices or (Choice("once", "this call only"),)


def _key(choice: Choice, request: ApprovalRequest) -> str:
    if request.risk != Risk.CRITICAL:
        return _LETTERS[choice.scope]
    return "yes" if choice.scope == "once" else choice.scope


_NUMBERS = re.compile(r"\d{1,3}(?:[ ,]+\d{1,3})*", re.ASCII)


def picked_answer(text: str, question: UserQuestion) -> tuple[str, ...]:
    """The labels of the numbers that were typed, or the text itself; nothing for nothing."""
    if question.options and _NUMBERS.fullmatch(text):
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if all(1 <= number <= len(question.options) for number in numbers):
            return tuple(question.options[number - 1].label for number in dict.fromkeys(numbers))
    return (text,) if text else ()
