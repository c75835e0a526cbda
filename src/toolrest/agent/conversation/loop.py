"""The turn loop: ask the model, run its calls, ask again until it makes no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from toolrest import events
from toolrest.agent.conversation.answer_form import AnswerForm, without_fence
from toolrest.agent.conversation.events import ContextCompacted, stream_error
from toolrest.agent.conversation.model_request import ModelReply, ModelRequestRun
from toolrest.agent.conversation.result import TurnEnd
from toolrest.agent.conversation.summary import SummaryRequest, is_about_images
from toolrest.agent.history.compaction import PROMPT, condensed, without_oldest
from toolrest.agent.history.history import message, message_text, without_refused_images
from toolrest.errors import Fatal
from toolrest.gate.decision.repeated_calls import LoopWatch
from toolrest.items import JSONObject
from toolrest.wire.items.pairing import is_models
from toolrest.wire.model import ModelError, retry_delay

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.usage import Budget
    from toolrest.gate.call.turn import Turn

ABORTED = """\
<turn_aborted>
The user stopped the last turn on purpose. Calls that were running were cut off and may have \
taken effect in part: check before you repeat one.
</turn_aborted>"""
_MOST_COMPACTIONS = 3
_MOST_HOLDS = 8
_MOST_CUTS = 5
"""Replies in a row that the model's limit may cut."""
_LONGEST_PROMPT = 60


class TurnFailed(Exception):
    """A turn that cannot go on; the session can."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Loop:
    """The loop of one turn, with its budget."""

    _turn: Turn

    def __init__(
        self, conversation: Conversation, budget: Budget, form: AnswerForm | None = None
    ) -> None:
        self.conversation = conversation
        self.budget = budget
        self.form = form
        self._complaints = 0
        self.text: str | None = None
        self._holds = 0
        self._cuts = 0

    async def run(self, messages: Sequence[JSONObject]) -> TurnEnd:
        """Run the turn of the user's messages to its end; only cancellation is raised."""
        return await self._in_turn(_first_line(messages), lambda: self._to_the_end(messages))

    async def compact(self, note: str) -> TurnEnd:
        """Replace the conversation by a summary; `note` says what it should keep."""
        return await self._in_turn("/compact", lambda: self._compact_now(note))

    async def _in_turn(self, prompt: str, work: Callable[[], Awaitable[TurnEnd]]) -> TurnEnd:
        conversation = self.conversation
        try:
            turns = conversation.rest.turn(
                commit=conversation.journal.commit,
                loops=LoopWatch(),
                prompt=conversation.redactor.redact(prompt),
            )
            async with turns as turn:
                self._turn = turn
                end = await work()
                conversation.takes_messages = False
                return end
        except TurnFailed as error:
            return TurnEnd("failed", error.reason, str(error), self.text)
        except ModelError as error:
            return TurnEnd("failed", f"model_{error.kind}", error.message, self.text)
        except Fatal as error:
            return TurnEnd("failed", _fatal_reason(error), error.message, self.text)

    async def _to_the_end(self, messages: Sequence[JSONObject]) -> TurnEnd:
        conversation = self.conversation
        runner = conversation.rest.session.runner.made
        if runner is not None:
            runner.enclosure.look_again()
        try:
            if conversation.is_full():
                await self._compact()
        finally:  # a user who stops it has still said what they said
            conversation.begin(messages, self._turn.id)
        while True:
            conversation.take_pending()
            limit = self.budget.used_up() or conversation.accounting.used_up()
            if limit is not None:
                return TurnEnd("budget", "budget", limit, self.text)
            sampled = await self._sample()
            self.text = sampled.text or self.text
            self._check_failure()
            if conversation.held:
                return TurnEnd("pending", "pending", text=self.text)
            if conversation.ends_after_calls:
                return TurnEnd(text=self.text)
            goes_on = sampled.follow_up or conversation.has_pending or self._complained()
            if not (goes_on or await self._hook_wants_more() or conversation.has_pending):
                return TurnEnd(text=self.text)
            if conversation.is_full():
                await self._compact()

    def _check_failure(self) -> None:
        if self._turn.failure is not None:
            raise self._turn.failure
        runner = self.conversation.rest.session.runner.made
        if self.conversation.interactive or runner is None:
            return  # the model has the refusal as an answer, and can go on with files
        if runner.enclosure.unavailable is not None:
            raise TurnFailed("sandbox_unavailable", runner.enclosure.unavailable)

    def _complained(self) -> bool:
        """Whether the answer was sent back because of its form; TurnFailed after the last time."""
        form = self.form
        if form is None:
            return False
        self.text = without_fence(self.text or "")
        problems = form.check(self.text)
        if problems is None:
            return False
        if self._complaints >= form.retries:
            times = f" after {form.retries} more tries" if form.retries else ""
            reason = f"the answer does not meet the schema{times}:\n{problems}"
            raise TurnFailed("schema_unmet", reason)
        self._complaints += 1
        self.conversation.record(message("user", form.complaint(problems)))
        return True

    async def _hook_wants_more(self) -> bool:
        """Whether a Stop hook wants the model to go on; its reason is the next message."""
        hooks = self.conversation.hooks
        if hooks is None or self._holds >= _MOST_HOLDS:
            return False
        reason = await hooks.stop(self.text or "")
        if reason:
            self._holds += 1
            self.conversation.record(message("user", reason))
        return bool(reason)

    async def _sample(self) -> ModelReply:
        """One reply of the model, with retries and compaction where they are needed."""
        attempt = compactions = 0
        shown = ""
        while True:
            schema = None if self.form is None else self.form.schema
            # The last try is for the form alone: many servers keep a model to a schema only when
            # it may make no calls.
            last = self.form is not None and 0 < self.form.retries == self._complaints
            request = self.conversation.request(self._turn.id, schema, may_call=not last)
            request.retries = self.conversation.model.stream_max_retries - attempt
            sampled = await ModelRequestRun(
                self.conversation, self._turn, self.budget, retried=attempt, shown=shown
            ).run(request)
            error, shown = sampled.error, sampled.shown
            attempt += sampled.retries
            if error is None:
                self.budget.turns += 1
                self._cuts = 0
                return sampled
            self._check_failure()
            if is_about_images(error) and self._drop_images():
                continue
            overflowed = error.kind == "context_window"
            if error.kind == "incomplete":  # a cut answer, unless there was no room for more
                overflowed = self.conversation.is_full()
            if overflowed and compactions < _MOST_COMPACTIONS:
                self._refuse_too_large(error)
                compactions += 1
                await self._compact(overflowed=True)
                continue
            if error.kind == "incomplete" and sampled.follow_up and self._cuts < _MOST_CUTS:
                # Its calls were answered: the model goes on from their outputs.
                self._cuts += 1
                self.budget.turns += 1
                message = f"an answer was cut after its calls: {error.message}"
                self.conversation.emit(events.Warning(message=message))
                return sampled
            attempt += 1
            await self._before_retry(error, attempt)

    def _drop_images(self) -> bool:
        """Remove images that would fail every request; False without any."""
        items = without_refused_images(self.conversation.transcript.items)
        if items is None:
            return False
        summary = "left out pictures that the model's server could not read"
        self.conversation.replace(items, summary)
        return True

    async def _before_retry(self, error: ModelError, attempt: int) -> None:
        most = self.conversation.model.stream_max_retries
        if not error.retryable or attempt > most or self._is_probably_misconfigured(error):
            raise error
        delay = retry_delay(attempt, error)
        self.conversation.emit(
            stream_error(error.kind, error.plain, seconds=delay, attempt=attempt, most=most)
        )
        await asyncio.sleep(delay)

    def _is_probably_misconfigured(self, error: ModelError) -> bool:
        """Whether the server is unreachable and has never answered: its name is probably wrong.

        The request itself was repeated already; the user should read the reason soon.
        """
        return error.kind == "unreachable" and not self.conversation.server_has_answered

    # Compaction

    def _refuse_too_large(self, error: ModelError) -> None:
        """End the turn when the request is too large and there is nothing to summarise yet."""
        conversation = self.conversation
        if any(is_models(item) for item in conversation.transcript.items):
            return
        window = error.window or conversation.model.context_window
        size = f" of {window:,} tokens" if window else ""
        raise TurnFailed(
            "model_context_window",
            f"the first request, about {conversation.tokens:,} tokens with instructions and tools, "
            f"does not fit the context window{size}: {error.message.rstrip('.')}. Use a larger "
            "window (llama.cpp: -c), send less, or offer fewer tools (tools.disabled)",
        )

    async def _compact_now(self, note: str) -> TurnEnd:
        self.conversation.close_open_calls()
        await self._compact(note=note)
        return TurnEnd()

    async def _compact(self, *, overflowed: bool = False, note: str | None = None) -> None:
        """Replace the history by a summary; with a `note` only if the model writes one."""
        conversation = self.conversation
        before = conversation.transcript.items
        tokens = conversation.tokens
        summary = await self._summary(before, overflowed, note or "")
        if note is not None and not summary.strip():
            reason = "the model wrote no summary; the conversation stays as it is"
            raise TurnFailed("no_summary", reason)
        ceiling = conversation.accounting.ceiling
        room = None if ceiling is None else ceiling - conversation.accounting.fixed()
        items = condensed(conversation.opening.items(), before, summary, room)
        conversation.replace(items, summary)
        conversation.emit(ContextCompacted(tokens_before=tokens, tokens_after=conversation.tokens))
        if conversation.is_full():
            raise TurnFailed(
                "model_context_window",
                "the conversation is too long even as a summary; start a new session, or raise "
                "model_auto_compact_token_limit",
            )

    async def _summary(self, items: Sequence[JSONObject], overflowed: bool, note: str) -> str:
        wanted = self.conversation.rest.settings.compact_prompt or PROMPT
        prompt = message("user", f"{wanted}\nThe user adds: {note}" if note else wanted)
        asked = SummaryRequest(self.conversation, self._turn.id, self._before_retry)
        return await asked.run(without_oldest(items) if overflowed else items, prompt)


def _first_line(messages: Sequence[JSONObject]) -> str:
    """The start of the user's last message."""
    texts = [message_text(item) for item in messages if item.get("role") == "user"]
    line = texts[-1].strip().partition("\n")[0] if texts else ""
    return line if len(line) <= _LONGEST_PROMPT else line[: _LONGEST_PROMPT - 1] + "…"


def _fatal_reason(error: Fatal) -> str:
    return "denied" if error.kind == "approval_denied" else "fatal"
