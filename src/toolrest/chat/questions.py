"""Questions to the person: approvals and the model's own, one at a time, in the live part.

An approval takes a single key, and only one that was meant for it: the question is inert until
the keyboard was quiet for half a second, a key counts when no other follows it at once, what is
pasted never counts, and while there is text in the composer keys go there. A question of the model
takes the line in the same way: once it is empty and the keyboard was quiet for half a second. Until
then the line is a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.gate.approval.user_questions import UserAnswers, UserQuestion, UserQuestions
from toolrest.gate.output.secret_values import can_hide
from toolrest.policy.effects import Risk
from toolrest.timeline.approval import describe, offered, picked_answer, typed_review
from toolrest.timeline.text import rows, text_width

if TYPE_CHECKING:
    from toolrest.chat.work_here import WorkHere

T = TypeVar("T")
QUIET = 0.5
ALONE = 0.25
"""Seconds in which no other key may follow the one that answers."""
_WRITTEN = {"d": "reason", "w": "word"}
"""Keys after which a line is written: a paste of both must not do it either."""


class Asked(Struct, eq=False):
    """An approval that waits."""

    request: ApprovalRequest
    answer: asyncio.Future[Review]
    appeared: float = 0.0
    seen_whole: bool = False
    """Everything about it was on the screen, in the pager at least."""
    shown: set[str] = field(default_factory=set)
    """Keys of the ways to approve that were on the screen, with exactly what each grants."""
    writes: str | None = None
    """What is being written: `reason` of a denial, or the `word` that a critical call wants."""
    more: list[tuple[str, str]] = field(default_factory=list)
    """Ways to approve that only this chat offers."""
    _lines: list[str] | None = None
    _rows: tuple[int, list[str], int] | None = None
    """The rows for the last width, and how wide the widest is: they are drawn in every frame."""

    @property
    def ways(self) -> list[tuple[str, str]]:
        """The keys that approve it, each with what is then granted."""
        return [*offered(self.request), *self.more]

    @property
    def lines(self) -> list[str]:
        """Everything about it."""
        if self._lines is None:
            self._lines = list(describe(self.request))
        return self._lines

    def rows(self, width: int) -> tuple[list[str], bool]:
        """Everything about it as rows of a terminal, and whether none of them is wider."""
        if self._rows is None or self._rows[0] != width:
            found = [row for line in self.lines for row in rows(line, width)]
            self._rows = width, found, max(map(text_width, found), default=0)
        _, found, widest = self._rows
        return found, widest <= width

    def see_all(self) -> None:
        """Note that all of it was shown."""
        self.seen_whole = True
        self.shown.update(key for key, _ in self.ways)

    @property
    def is_critical(self) -> bool:
        """Whether a single key is not enough."""
        return self.request.risk == Risk.CRITICAL


class Posed(Struct, eq=False):
    """A question of the model that waits."""

    question: UserQuestion
    answer: asyncio.Future[tuple[str, ...] | None]
    count: str = ""
    problem: str = ""
    takes_line: bool = False
    """Whether the line that is written is its answer, and no message."""


class Questions:
    """All questions that wait; the first is shown. `changed` is called when that is another."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._waiting: list[Asked | Posed] = []
        self._last_key = self._key_before = 0.0
        self._candidate: asyncio.TimerHandle | None = None
        self._held = self._held_back = ""
        self._quiet: asyncio.TimerHandle | None = None
        self.is_line_free: Callable[[], bool] = lambda: True
        """Whether no message is being written; the chat sets it."""
        self.see_all: Callable[[], None] = lambda: None
        """Shows all of the approval; the chat sets it."""
        self.work_here: WorkHere | None = None
        """The way out of a read-only session; the chat sets it."""

    # For the gate

    async def __call__(self, request: ApprovalRequest) -> Review:
        """Wait for the answer to an approval request."""
        more: list[tuple[str, str]] = []
        if self.work_here is not None:
            more, request = self.work_here.offer(request), self.work_here.shortened(request)
        asked = Asked(request, asyncio.get_running_loop().create_future(), more=more)
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

    async def _wait(self, entry: Asked | Posed, answer: asyncio.Future[T]) -> T:
        self._waiting.append(entry)
        self._show()
        try:
            return await answer
        finally:
            self._waiting.remove(entry)
            self._forget_candidate()
            self._show()

    def _show(self) -> None:
        first = self.first
        if isinstance(first, Asked):
            first.appeared = monotonic()
        self._await_quiet()
        self._changed()

    def _await_quiet(self) -> None:
        """Give a question of the model the line once no key has come for a while."""
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        first = self.first
        if isinstance(first, Posed) and not first.takes_line:
            loop = asyncio.get_running_loop()
            self._quiet = loop.call_later(QUIET, self._take_line, first)

    def _take_line(self, posed: Posed) -> None:
        self._quiet = None
        if self.first is posed and self.is_line_free():
            posed.takes_line = True
            self._changed()

    # For the screen

    @property
    def first(self) -> Asked | Posed | None:
        """The question on the screen."""
        return self._waiting[0] if self._waiting else None

    @property
    def approval(self) -> Asked | None:
        """The approval on the screen, if it is one."""
        first = self.first
        return first if isinstance(first, Asked) else None

    @property
    def writes(self) -> tuple[Asked | Posed, str] | None:
        """The question that the line is written for, and what it is; None for a message."""
        first = self.first
        if isinstance(first, Posed):
            return (first, "answer") if first.takes_line else None
        return (first, first.writes) if first is not None and first.writes is not None else None

    @property
    def others(self) -> int:
        """How many wait behind it."""
        return max(0, len(self._waiting) - 1)

    @property
    def is_armed(self) -> bool:
        """Whether a key may answer: the approval was there, and the keyboard quiet, for a while."""
        asked = self.approval
        if asked is None or asked.writes is not None:
            return False
        return monotonic() - max(asked.appeared, self._key_before) >= QUIET

    def key_arrives(self) -> None:
        """Note a key before anything handles it: none, whatever it does, may follow an answer."""
        self._key_before, self._last_key = self._last_key, monotonic()
        self._held_back = self._held if self._candidate is not None else ""
        self._forget_candidate()
        self._await_quiet()

    def key_pressed(self) -> None:
        """Make the question inert for a while: the person was busy with something else."""
        self._key_before = self._last_key = monotonic()
        self._await_quiet()

    def key(self, key: str) -> bool:
        """A key for the approval; False when it is not one of its keys, or comes too early."""
        asked, armed = self.approval, self.is_armed
        self.key_pressed()
        if asked is None or not armed:
            return False
        word = key == "w" and asked.is_critical
        if key in ("e", "n", "d", "q") or (asked.seen_whole and (word or key in asked.shown)):
            return self._choose(asked, key)
        return False

    def _choose(self, asked: Asked, key: str) -> bool:
        """Take the key once it is clear that no other follows it."""
        loop = asyncio.get_running_loop()
        self._held = key
        self._candidate = loop.call_later(ALONE, self._take, asked, key)
        return True

    def _take(self, asked: Asked, key: str) -> None:
        self._candidate = None
        if self.approval is not asked or asked.answer.done():
            return
        if key == "e":
            self.see_all()
        elif key in _WRITTEN:
            asked.writes = _WRITTEN[key]
            self._changed()
        elif self.work_here is not None and key in dict(asked.more):
            self.work_here.accept()
            asked.answer.set_result(Review("approved"))
        else:
            asked.answer.set_result(typed_review(asked.request, key, cut=not asked.seen_whole))

    def take_back(self) -> str:
        """The key that seemed to answer, but another came at once: it is text after all."""
        held = self._held if self._candidate is not None else self._held_back
        self._forget_candidate()
        self._held_back = ""
        return held

    def _forget_candidate(self) -> None:
        if self._candidate is not None:
            self._candidate.cancel()
        self._candidate, self._held = None, ""

    def written(self, text: str) -> None:
        """The line that was written for the question on the screen."""
        first = self.first
        if first is not None and first.answer.done():
            return  # it was answered this moment, elsewhere for one
        if isinstance(first, Posed):
            answer = picked_answer(text.strip(), first.question)
            if first.question.is_secret and not all(map(can_hide, answer)):
                first.problem = "That is too short (or a path) to be kept out of logs."
                self._changed()
            elif answer:
                first.answer.set_result(answer)
        elif first is not None and first.writes == "reason":
            first.answer.set_result(Review("denied", text.strip()))
        elif first is not None and first.writes == "word":
            review = typed_review(first.request, text, cut=not first.seen_whole)
            first.writes = None
            if review.approves:
                first.answer.set_result(review)
            self._changed()

    def dismiss(self) -> None:
        """Decline the question on the screen, or leave what was being written for it."""
        first = self.first
        if first is not None and first.answer.done():
            return
        if isinstance(first, Posed):
            first.answer.set_result(None)
        elif first is not None and first.writes is not None:
            first.writes = None
            self.key_pressed()
            self._changed()
