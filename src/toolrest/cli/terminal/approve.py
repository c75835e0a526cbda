"""The approver at a terminal, and a model's questions to the user there.

What is shown is what will run, escaped so that it cannot deceive. Secret answers are not echoed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from toolrest.chat.work_here import KEY
from toolrest.cli.terminal.terminal import PASTED, Terminal
from toolrest.control.server import open_control
from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.gate.approval.user_questions import UserAnswers, UserQuestion, UserQuestions
from toolrest.gate.output.secret_values import can_hide
from toolrest.policy.effects import Risk
from toolrest.timeline.approval import approval_form, describe, picked_answer
from toolrest.timeline.text import block, rows, shown

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.chat.work_here import WorkHere

_KEYS = "e details · n and words: what to do instead · q stops the turn"
_NOT_ALL = "… more below: e shows all, then you can approve"
_SHORT_LINES = 40
_SHORT_LINE = 2000


class TerminalApprover:
    """The approver of a session with a person in front of it.

    While a question stands on the terminal, `quiet` keeps everything else off it.
    """

    def __init__(
        self,
        terminal: Terminal | None = None,
        quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
        work_here: WorkHere | None = None,
    ) -> None:
        self._terminal = terminal or Terminal()
        self._quiet = quiet
        self._work_here = work_here
        """The way out of a read-only session, where this front end can open it anew."""
        self._workspace = ""

    def opened(self, conversation: Conversation) -> None:
        """Let the browser answer this session's requests, too."""
        self._workspace = conversation.rest.workspace
        open_control(conversation)

    async def __call__(self, request: ApprovalRequest) -> Review:
        """Show the call and take an answer; anything but a clear approval denies it."""
        if self._work_here is not None:
            request = self._work_here.shortened(request)
        async with self._terminal.lock:
            with self._quiet():
                return await self._ask(request)

    async def _ask(self, request: ApprovalRequest) -> Review:
        cut = self._show(request, list(describe(request, self._workspace)))
        more = False
        while True:
            review = await self._answer(request, cut, more)
            if review is not None:
                return review
            for line in approval_form(request, self._workspace).details:
                self._terminal.say(line)
            cut, more = False, True

    async def ask_user(self, asked: UserQuestions) -> UserAnswers:
        """Ask the model's questions, one after the other."""
        with self._quiet():
            return await answers_from(self._terminal, asked)

    def _show(self, request: ApprovalRequest, lines: list[str]) -> bool:
        """Print the lines; True when some were left out: what scrolls away was not seen."""
        width, height = self._terminal.size
        answers = self._ways(request, more=False)
        below = sum(len(rows(answer, width)) for answer in (*answers, _KEYS))
        room = min(_SHORT_LINES, max(height - below - 3, 1))
        for line in lines:
            short = line if len(line) <= _SHORT_LINE else f"{line[:_SHORT_LINE]} …"
            room -= len(rows(short, width))
            if room >= 0:
                self._terminal.say(short)
            if room < 0 or short is not line:
                self._terminal.say(f"  {_NOT_ALL}")
                return True
        return False

    def _works_here(self, request: ApprovalRequest, typed: str) -> bool:
        work_here = self._work_here
        if work_here is None or typed.strip().lower() != KEY or not work_here.offer(request):
            return False
        work_here.accept()
        return True

    def _ways(self, request: ApprovalRequest, *, more: bool) -> list[str]:
        """The answers, numbered; those of the details by their letter."""
        form = approval_form(request, self._workspace)
        here = self._work_here.offer(request) if self._work_here is not None else []
        found = [f"  {number}. {one.label}" for number, one in enumerate(form.options, 1)]
        found[0] += " (type yes)" if form.is_critical else ""
        found += [f"  {one.letter}. {one.label}" for one in form.more if more]
        return [*found, *(f"  {key}. {label}" for key, label in here)]

    async def _answer(self, request: ApprovalRequest, cut: bool, more: bool) -> Review | None:
        """The answer; None when the person wants to see the details."""
        for answer in [] if cut else self._ways(request, more=more):
            self._terminal.say(answer)
        self._terminal.say(f"  {_KEYS}")
        while (typed := await self._terminal.typed("Answer: ")) == PASTED:
            self._terminal.say("  A paste does not answer this; type it.")
        if typed is None:
            return Review("abort")
        if typed.strip().lower() in ("e", "?"):
            return None
        if not cut and self._works_here(request, typed):
            return Review("approved")
        return typed_review(request, typed, cut=cut, more=more)


def typed_review(
    request: ApprovalRequest, typed: str, *, cut: bool = False, more: bool = True
) -> Review:
    """The review that a typed line means; anything but a clear approval denies.

    With `cut` the person has not seen all of the request, and cannot approve it; without `more`
    they have not seen the answers that only the details have.
    """
    key, _, note = typed.strip().partition(" ")
    key = key.lower()
    if key in ("q", "quit"):
        return Review("abort")
    form = approval_form(request)
    options = form.options
    if key in ("n", "no", str(len(options))):
        return Review("denied", note.strip())
    if cut or note:
        return Review("denied")
    for number, option in enumerate((*options[:-1], *(form.more if more else ())), 1):
        keys = {"yes" if option.key == "once" else option.key}
        if request.risk < Risk.CRITICAL:
            keys |= {option.letter, option.key}
            keys |= {str(number)} if number < len(options) else set()
        if key in keys:
            return Review(request.answer_for(option.key))
    return Review("denied")


_TRIES = 3


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
        picked = picked_answer(typed.strip(), question)
        if not picked:
            continue
        if question.is_secret and not all(can_hide(text.strip()) for text in picked):
            terminal.say("  That is too short (or a path) to be kept out of logs.")
            continue
        return picked
    return None
