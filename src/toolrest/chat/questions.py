"""Questions to the person: approvals and the model's own, one at a time, above the composer.

While a question is open no key goes to the line. A key answers when the question could be read, and
the keyboard was quiet, for half a second before it, and no other key follows it at once: nobody
approves in the middle of a sentence. What comes earlier is dropped, and so is a paste; arrows mark
another answer. An answer in words takes the line, and gives it back with what stood there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct, field

from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.gate.approval.user_questions import UserAnswers, UserQuestion, UserQuestions
from toolrest.gate.output.secret_values import can_hide
from toolrest.timeline.approval import AnswerOption, ApprovalForm, approval_form, picked_answer
from toolrest.timeline.text import shown
from toolrest.timeline.wrap import Line

if TYPE_CHECKING:
    from toolrest.chat.work_here import WorkHere

T = TypeVar("T")
QUIET = 0.5
"""Seconds without a key, and with the question on the screen, before a key can answer."""
ALONE = 0.25
"""Seconds in which no other key may follow the one that answers, or come after an arrow."""
SHOW_ALL = AnswerOption("all", "e", "Show all of it, then answer")
HERE = "here"
OTHER = "other"


class Asked(Struct, eq=False):
    """An approval that waits."""

    request: ApprovalRequest
    form: ApprovalForm
    answer: asyncio.Future[Review]
    here: tuple[AnswerOption, ...] = ()
    """Answers that only this chat offers."""
    at: int = 0
    """The marked answer."""
    readable: float | None = None
    """Since when it is on the screen."""
    is_above: bool = False
    """What would run, or change, was put above the live part, all of it on one screen."""
    seen_whole: bool = False
    """Everything about it was on the screen, in the pager at least."""
    seen_details: bool = False
    shown: set[str] = field(default_factory=set)
    """The answers that were on the screen."""
    writes: str = ""
    """What is being written: a `note` for the model, or the `word` that a critical call wants."""
    chosen: str = ""
    """The answer that the word is for."""
    laid_out: tuple[int, list[Line], list[Line]] | None = None
    """What would run, and that with what would change, as rows of this width."""

    @property
    def options(self) -> list[tuple[str, AnswerOption]]:
        """The answers to choose from now, each with the key that stands before it."""
        if not self.seen_whole:
            return [(SHOW_ALL.letter, SHOW_ALL), self.answers[-1]]
        more = self.form.more if self.seen_details else ()
        return [*self.answers, *((one.letter, one) for one in more)]

    @property
    def answers(self) -> list[tuple[str, AnswerOption]]:
        """The answers once all of it was seen, without those of the details."""
        *approving, deny = self.form.options
        return [(str(n), one) for n, one in enumerate((*approving, *self.here, deny), 1)]

    def see_details(self) -> None:
        """Note that all of it, and exactly what each answer stores, was shown."""
        self.seen_whole = self.seen_details = True
        self.at = 0
        self.shown.update(one.key for _, one in self.options)


class Posed(Struct, eq=False):
    """A question of the model that waits."""

    question: UserQuestion
    answer: asyncio.Future[tuple[str, ...] | None]
    count: str = ""
    at: int = 0
    readable: float | None = None
    problem: str = ""
    writes: str = ""
    """`answer` while the line that is written is its answer."""

    @property
    def options(self) -> list[tuple[str, AnswerOption]]:
        """The answers to choose from; none where it takes words alone."""
        given = [_words(one.label, one.description) for one in self.question.options]
        found = [(str(n), AnswerOption(str(n), "", text)) for n, text in enumerate(given, 1)]
        other = str(len(found) + 1)
        return [*found, (other, AnswerOption(OTHER, "", "Another answer"))] if found else []


class Offered(Struct, eq=False):
    """A question of Toolrest itself that waits: about the folder, before there is a session."""

    lines: tuple[str, ...]
    """The sentence, and what is to be known for it."""
    labels: tuple[str, ...]
    answer: asyncio.Future[int | None]
    at: int = 0
    readable: float | None = None
    writes: str = ""

    @property
    def options(self) -> list[tuple[str, AnswerOption]]:
        """The answers to choose from."""
        numbered = ((str(n), label) for n, label in enumerate(self.labels, 1))
        return [(key, AnswerOption(key, label[:1].lower(), label)) for key, label in numbered]


Waiting: TypeAlias = "Asked | Posed | Offered"


def _words(label: str, description: str) -> str:
    return shown(f"{label}: {description}" if description else label)


class Questions:
    """All questions that wait; the first is shown. `changed` is called when that is another."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._waiting: list[Waiting] = []
        self._last_key = self._key_before = 0.0
        self._moved = self._moved_before = False
        """Whether the last key, or the one before it, marked another answer."""
        self._candidate: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self.is_early = False
        """Whether a key was dropped because it came too early."""
        self.workspace = ""
        self.is_screen_free: Callable[[], bool] = lambda: True
        """Whether the question is on the screen, and no pager or editor; the chat sets it."""
        self.see_all: Callable[[], None] = lambda: None
        """Shows all of the question; the chat sets it."""
        self.work_here: WorkHere | None = None
        """The way out of a read-only session; the chat sets it."""

    # For the gate

    async def __call__(self, request: ApprovalRequest) -> Review:
        """Wait for the answer to an approval request."""
        here: tuple[AnswerOption, ...] = ()
        if self.work_here is not None:
            offers = self.work_here.offer(request)
            here = tuple(AnswerOption(HERE, key, label) for key, label in offers)
            request = self.work_here.shortened(request)
        form = approval_form(request, self.workspace)
        asked = Asked(request, form, asyncio.get_running_loop().create_future(), here)
        return await self._wait(asked, asked.answer)

    async def ask_user(self, asked: UserQuestions) -> UserAnswers:
        """Wait for the answers to the model's questions; None when the person declines one."""
        found: dict[str, tuple[str, ...]] = {}
        for number, question in enumerate(asked.questions, 1):
            count = f" ({number} of {len(asked.questions)})" if asked.questions[1:] else ""
            posed = Posed(question, asyncio.get_running_loop().create_future(), count)
            answer = await self._wait(posed, posed.answer)
            if answer is None:
                return None
            found[question.id] = answer
        return found

    async def choose(self, lines: Sequence[str], labels: Sequence[str]) -> int | None:
        """Wait for a choice among these answers: its number from 1; None for Esc."""
        for _ in range(2):
            await asyncio.sleep(0)  # keys that came before, while this loop was busy, are text
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        return await self._wait(Offered(tuple(lines), tuple(labels), answer), answer)

    async def _wait(self, entry: Waiting, answer: asyncio.Future[T]) -> T:
        self._waiting.append(entry)
        self._changed()
        try:
            return await answer
        finally:
            self._waiting.remove(entry)
            self._forget_candidate()
            self.is_early = False
            if self.first is not None:
                self.first.readable = None  # the keys so far were for the one before it
            self._changed()

    # For the screen

    @property
    def first(self) -> Waiting | None:
        """The question on the screen."""
        return self._waiting[0] if self._waiting else None

    @property
    def approval(self) -> Asked | None:
        """The approval on the screen, if it is one."""
        first = self.first
        return first if isinstance(first, Asked) else None

    @property
    def writes(self) -> tuple[Waiting, str] | None:
        """The question that the line is written for, and what it is; None for a message."""
        first = self.first
        return None if first is None or not first.writes else (first, first.writes)

    @property
    def is_choosing(self) -> bool:
        """Whether every key is for the question: the line is not."""
        return self.first is not None and not self.first.writes

    @property
    def others(self) -> int:
        """How many wait behind it."""
        return max(0, len(self._waiting) - 1)

    def was_drawn(self) -> None:
        """Note that the question is on the screen: it can be read from now on."""
        first = self.first
        if first is not None and first.readable is None:
            first.readable = monotonic()
            self._await_quiet()

    # For keys

    @property
    def is_ready(self) -> bool:
        """Whether a key may answer: it could be read, and the keyboard was quiet, for a while."""
        first = self.first
        if first is None or first.readable is None:
            return False
        now = monotonic()
        quiet = ALONE if self._moved_before else QUIET
        return now - first.readable >= QUIET and now - self._key_before >= quiet

    def key_arrives(self) -> None:
        """Note a key before anything handles it: none, whatever it does, may follow an answer."""
        self._key_before, self._last_key = self._last_key, monotonic()
        self._moved_before, self._moved = self._moved, False
        self._forget_candidate()
        self._await_quiet()

    def key_pressed(self) -> None:
        """Make the question inert for a while: the person was busy with something else."""
        self._key_before = self._last_key = monotonic()
        self._moved = self._moved_before = False
        self._forget_candidate()
        self._await_quiet()

    def press(self, key: str) -> None:
        """A key while a question is open: `up`, `down`, `enter` or a character; others are dropped.

        What comes too early is dropped, too, and the screen says so.
        """
        first = self.first
        if first is None or first.writes or first.answer.done():
            return
        options = first.options
        if not self.is_ready or not options or not key:
            self.drop()
        elif key in ("up", "down"):
            first.at = (first.at + (1 if key == "down" else -1)) % len(options)
            self._moved = True
            self._changed()
        else:
            chosen = _chosen(first, key)
            if chosen is None:
                self.drop()
            elif chosen.key != SHOW_ALL.key:
                first.at = next(n for n, (_, one) in enumerate(options) if one == chosen)
            if chosen is not None:
                loop = asyncio.get_running_loop()
                self._candidate = loop.call_later(ALONE, self._take, first, chosen)
                self._changed()

    def drop(self) -> None:
        """Drop what came too early, or is no answer, and say so until the keyboard is quiet."""
        self.is_early = True
        self._await_quiet()
        self._changed()

    def _await_quiet(self) -> None:
        """Once no key has come for a while: a key answers, and words of an answer get the line."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        first = self.first
        if first is not None and not first.writes and (self.is_early or not first.options):
            self._later = asyncio.get_running_loop().call_later(QUIET, self._is_quiet, first)

    def _is_quiet(self, first: Waiting) -> None:
        self._later = None
        if self.first is not first:
            return
        self.is_early = False
        takes_words = isinstance(first, Posed) and not first.options
        if takes_words and first.readable is not None and self.is_screen_free():
            first.writes = "answer"
        self._changed()

    def _take(self, first: Waiting, chosen: AnswerOption) -> None:
        self._candidate = None
        if self.first is not first or first.answer.done():
            return
        if isinstance(first, Posed):
            self._pick(first, chosen)
        elif isinstance(first, Offered):
            first.answer.set_result(int(chosen.key))
        elif chosen.key == SHOW_ALL.key:
            self.see_all()
        elif chosen.key == "deny" or first.form.is_critical:
            first.writes = "note" if chosen.key == "deny" else "word"
            first.chosen = chosen.key
            self._changed()
        elif chosen.key == HERE:
            if self.work_here is not None:
                self.work_here.accept()
            first.answer.set_result(Review("approved"))
        else:
            first.answer.set_result(Review(first.request.answer_for(chosen.key)))

    def _pick(self, posed: Posed, chosen: AnswerOption) -> None:
        if chosen.key == OTHER:
            posed.writes = "answer"
            self._changed()
        else:
            label = posed.question.options[int(chosen.key) - 1].label
            posed.answer.set_result((label,))

    def _forget_candidate(self) -> None:
        if self._candidate is not None:
            self._candidate.cancel()
            self.is_early = True
        self._candidate = None

    def written(self, text: str) -> None:
        """The line that was written for the question on the screen."""
        first = self.first
        if first is None or first.answer.done():
            return  # it was answered this moment, elsewhere for one
        if isinstance(first, Posed):
            answer = picked_answer(text.strip(), first.question)
            if first.question.is_secret and not all(map(can_hide, answer)):
                first.problem = "That is too short (or a path) to be kept out of logs."
                self._changed()
            elif answer:
                first.answer.set_result(answer)
        elif isinstance(first, Offered):
            return
        elif first.writes == "note":
            first.answer.set_result(Review("denied", text.strip()))
        elif first.writes == "word":
            first.writes = ""
            if text.strip().lower() == "yes" and first.seen_whole:
                first.answer.set_result(Review(first.request.answer_for(first.chosen)))
            self._changed()

    def dismiss(self) -> None:
        """Leave what is being written for the question on the screen, or decline the model's."""
        first = self.first
        if first is None or first.answer.done():
            return
        if first.writes and first.options:
            first.writes = ""
            self.key_pressed()
            self._changed()
        elif not isinstance(first, Asked):
            first.answer.set_result(None)


def _chosen(first: Waiting, key: str) -> AnswerOption | None:
    """The answer that a key takes: the marked one, or the one with this key or letter."""
    options = first.options
    if key == "enter":
        found = options[first.at][1]
    else:
        named = (one for name, one in options if key in (name, one.letter) and key)
        if isinstance(first, Asked) and key == SHOW_ALL.letter:
            return SHOW_ALL
        one = next(named, None)
        if one is None:
            return None
        found = one
    if isinstance(first, Asked) and found.key not in (*first.shown, "deny", SHOW_ALL.key):
        return None  # it was not on the screen
    return found
