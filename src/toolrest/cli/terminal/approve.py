"""The approver at a terminal, and a model's questions to the user there.

What is shown is what will run, escaped so that it cannot deceive. Secret answers are not echoed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from toolrest.cli.terminal.terminal import Terminal, block, shown
from toolrest.gate.approval.request import ApprovalRequest, Choice, Review
from toolrest.gate.approval.user_questions import UserAnswers, UserQuestion, UserQuestions
from toolrest.gate.output.secret_values import can_hide
from toolrest.policy.effects import Risk

_LETTERS = {"once": "y", "session": "s", "project": "p", "user": "a", "rule": "r"}
_SHORT_LINES = 40
_SHORT_LINE = 2000
_VERBS = {
    "write": "writes",
    "run": "runs",
    "connect": "connects to",
    "call": "calls",
    "unknown": "does not say what it touches: anything may happen",
}


class TerminalApprover:
    """The approver of a session with a person in front of it."""

    def __init__(self, terminal: Terminal | None = None) -> None:
        self._terminal = terminal or Terminal()

    async def __call__(self, request: ApprovalRequest) -> Review:
        """Show the call and take an answer; anything but a clear approval denies it."""
        async with self._terminal.lock:
            lines = list(describe(request))
            cut = self._show(lines)
            while True:
                review = await self._answer(request, cut)
                if review is not None:
                    return review
                for line in lines:
                    self._terminal.say(line)
                cut = False

    async def ask_user(self, asked: UserQuestions) -> UserAnswers:
        """Ask the model's questions, one after the other."""
        return await answers_from(self._terminal, asked)

    def _show(self, lines: list[str]) -> bool:
        """Print the lines; True when some were left out."""
        short = [line if len(line) <= _SHORT_LINE else line[:_SHORT_LINE] + " …" for line in lines]
        for line in short[:_SHORT_LINES]:
            self._terminal.say(line)
        if short[:_SHORT_LINES] == lines:
            return False
        self._terminal.say("  … this is not all of it; see it with [e] before you can approve")
        return True

    async def _answer(self, request: ApprovalRequest, cut: bool) -> Review | None:
        """The answer, or None when all of it is to be shown."""
        choices = request.choices or (Choice("once", "this call only"),)
        word = request.risk == Risk.CRITICAL
        if not cut:
            for choice in choices:
                sentence = shown(choice.sentence)
                self._terminal.say(f"  [{_key(choice, word)}] {choice.scope}: {sentence}")
        self._terminal.say("  [n] no (what you write after it is sent to the model)")
        self._terminal.say("  [q] no, and end the turn")
        typed = await self._terminal.line("Run it? ")
        if typed is None:
            return Review("abort")
        key, _, note = typed.strip().partition(" ")
        key = key.lower()
        if cut and key == "e":
            return None
        if key in ("q", "quit"):
            return Review("abort")
        if key in ("n", "no"):
            return Review("denied", note.strip())
        return Review("denied") if cut or note else _chosen(key, choices, word)


def _key(choice: Choice, word: bool) -> str:
    """What is typed to choose it; what is critical wants a whole word."""
    if not word:
        return _LETTERS[choice.scope]
    return "yes" if choice.scope == "once" else choice.scope


def _chosen(key: str, choices: tuple[Choice, ...], word: bool) -> Review:
    for choice in choices:
        keys = {_key(choice, word)}
        if not word:
            keys |= {choice.scope, *(("yes",) if choice.scope == "once" else ())}
        if key in keys:
            return Review(choice.answer)
    return Review("denied")


def describe(request: ApprovalRequest) -> Iterator[str]:
    """Everything a person needs to decide, line by line, nothing left out."""
    where = ", OUTSIDE THE SANDBOX" if request.leaves else ""
    yield f"{shown(request.tool)} wants to run ({request.risk.label}{where}):"
    if request.agent:
        yield f"  asked by:  the sub-agent {shown(request.agent)}"
    if request.command:
        yield "  command:"
        yield from block(_command_line(request.command))
    if request.cwd:
        yield f"  in:        {shown(request.cwd)}"
    if request.purpose:
        yield f"  for:       {shown(request.purpose)} (says the model)"
    yield f"  because:   {shown(request.reason)}"
    if request.retry_reason:
        yield f"  again:     {shown(request.retry_reason)}"
    for key in request.keys:
        kind, _, rest = key.partition(":")
        if kind != "run" or not request.command:
            yield f"  it         {_VERBS.get(kind) or shown(kind)} {shown(rest)}".rstrip()
    if request.diff:
        yield "  changes:"
        yield from block(request.diff.rstrip("\n"))
    if not request.command and not request.diff:
        yield f"  arguments: {shown(request.arguments)}"


def _command_line(argv: tuple[str, ...]) -> str:
    """The script itself where a shell is only there to run one, else the argument vector."""
    if len(argv) == 3 and argv[1] in ("-c", "-lc") and argv[0].rsplit("/", 1)[-1] in _SHELLS:
        return argv[2]
    return shlex.join(argv)


_SHELLS = ("sh", "bash", "zsh", "dash")


_TRIES = 3
_NUMBERS = re.compile(r"\d{1,3}(?:[ ,]+\d{1,3})*", re.ASCII)


async def answers_from(
    terminal: Terminal, asked: UserQuestions
) -> dict[str, tuple[str, ...]] | None:
    """Ask every question; None when the person leaves (Ctrl-D) or gives no answer."""
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
