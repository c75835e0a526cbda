"""A model's questions at the terminal: pick a number, or write; secrets are not echoed."""

from __future__ import annotations

import re

from toolrest.cli.terminal.terminal import Terminal, block, shown
from toolrest.gate.approval.user_questions import UserQuestion, UserQuestions
from toolrest.gate.output.secret_values import can_hide

_TRIES = 3
_NUMBERS = re.compile(r"\d{1,3}(?:[ ,]+\d{1,3})*", re.ASCII)


async def answers_from(
    terminal: Terminal, asked: UserQuestions
) -> dict[str, tuple[str, ...]] | None:
    """Ask every question; None when the person leaves (Ctrl-D) or keeps saying nothing."""
    found: dict[str, tuple[str, ...]] = {}
    async with terminal.lock:
        for number, question in enumerate(asked.questions, 1):
            count = f" ({number} of {len(asked.questions)})" if len(asked.questions) > 1 else ""
            terminal.say(f"The model asks{count}: {shown(question.header)}")
            for line in block(question.question):
                terminal.say(line)
            answer = await _answer(terminal, question)
            if answer is None:
                return None
            found[question.id] = answer
    return found


async def _answer(terminal: Terminal, question: UserQuestion) -> tuple[str, ...] | None:
    for index, option in enumerate(question.options, 1):
        terminal.say(f"  [{index}] {shown(option.label)}: {shown(option.description)}")
    if question.is_secret:
        terminal.say("  The model will read it. It is not shown here and kept out of all logs.")
    elif question.options:
        terminal.say("  Or write an answer of your own.")
    for _ in range(_TRIES):
        typed = await terminal.line("Answer: ", secret=question.is_secret)
        if typed is None:
            return None
        picked = _picked(typed.strip(), question)
        if not picked:
            continue
        if question.is_secret and not all(can_hide(text.strip()) for text in picked):
            terminal.say("  That is too short (or a path) to be kept out of logs.")
            continue
        return picked
    return None


def _picked(text: str, question: UserQuestion) -> tuple[str, ...]:
    """The labels of the numbers typed, or the text itself; nothing for nothing."""
    if question.options and _NUMBERS.fullmatch(text):
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if all(1 <= number <= len(question.options) for number in numbers):
            return tuple(question.options[number - 1].label for number in dict.fromkeys(numbers))
    return (text,) if text else ()
