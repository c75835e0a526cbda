"""A request to the model: calls start while it still streams, outputs follow in call order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from toolrest import events
from toolrest.agent.conversation.events import (
    AgentMessage,
    AgentMessageDelta,
    AgentReasoning,
    AgentReasoningDelta,
    AgentReasoningRaw,
    ArgumentsPreview,
    stream_error,
)
from toolrest.agent.history.history import answered_item, message_text, output_item
from toolrest.agent.history.journal import EARLY_OUTPUT
from toolrest.errors import Fatal
from toolrest.items import JSONObject
from toolrest.wire.items.decode import calls_in, is_finished_search
from toolrest.wire.items.pairing import call_id_of, is_call
from toolrest.wire.items.parts import WIRE_NAME
from toolrest.wire.model import (
    ArgumentsDelta,
    Completed,
    CutCall,
    ItemDone,
    ItemStarted,
    ModelError,
    Notice,
    ReasoningDelta,
    Retrying,
    TextDelta,
)

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.usage import Budget
    from toolrest.gate.call.turn import RunningCall, Turn
    from toolrest.gate.output.redact import StreamRedactor
    from toolrest.items import CallItem, ToolOutput
    from toolrest.wire.model import ModelEvent, ModelRequest

_STORED = frozenset(
    {"reasoning", "web_search_call", "image_generation_call", "compaction", "compaction_summary"}
)


class ModelReply(Struct):
    """The model's reply to one request. `error` is set when it broke off."""

    follow_up: bool = False
    text: str | None = None
    complete: bool = False
    error: ModelError | None = None
    retries: int = 0
    """How often the request was repeated before a reply began."""
    shown: str = ""
    """The text of a message that was shown and then cut off."""


class _Call(Struct):
    """A recorded call item, and its running call or refusal."""

    item: JSONObject
    running: RunningCall | None = None
    refusal: str = "not run: the turn ended"


class _Deltas:
    """The pieces of a message to show: none that a cut stream has shown before."""

    def __init__(self, before: str = "") -> None:
        self._before = before
        self._pieces: list[str] = []

    @property
    def shown(self) -> str:
        """What was shown of the message so far."""
        return self._before or "".join(self._pieces)

    def feed(self, delta: str) -> str:
        """The part of a piece that is new."""
        self._pieces.append(delta)
        if not self._before:
            return delta
        text = "".join(self._pieces)
        if self._before.startswith(text):
            return ""
        before, self._before = self._before, ""
        if text.startswith(before):
            return text[len(before) :]
        return f"\n{text}"


class ModelRequestRun:
    """One request and the calls it made."""

    def __init__(
        self,
        conversation: Conversation,
        turn: Turn,
        budget: Budget,
        *,
        retried: int = 0,
        shown: str = "",
    ) -> None:
        """`retried`: how often this request was repeated; `shown`: the text that a cut one left."""
        self.conversation = conversation
        self._retried = retried
        self._deltas = _Deltas(shown)
        self._message: JSONObject | None = None
        """A complete message; it counts once the stream goes on, so none is recorded twice."""
        self.turn = turn
        turn.on_output = self._ended
        self._is_over = False
        """Whether all calls have come, so that outputs can take their places."""
        self.budget = budget
        self.result = ModelReply()
        self._calls: list[_Call] = []
        self._recorded = 0
        # A secret may come in two pieces.
        self._shown = conversation.redactor.stream()
        self._thoughts = {raw: conversation.redactor.stream() for raw in (False, True)}
        settings = conversation.rest.settings
        self._shows_summary = not settings.hide_agent_reasoning
        self._shows_raw = self._shows_summary and settings.show_raw_agent_reasoning
        self._previews: dict[tuple[str, str], StreamRedactor] = {}
        self._searches: dict[str, float] = {}
        """When the server began its searches, by their ids."""

    async def run(self, request: ModelRequest) -> ModelReply:
        """Send the request, run the calls of the reply, record both. Cancelling ends all calls."""
        try:
            try:
                # Every model's stream is a generator; closing it closes the connection.
                async with aclosing(cast(Any, self.conversation.model.stream(request))) as stream:
                    async for event in stream:
                        self._take(event)
                        if self.result.complete:
                            break
            except ModelError as error:
                self.result.error = error
                if error.usage is not None:
                    self.conversation.replied(error.usage)
                if error.kind == "incomplete" or not error.retryable:
                    self._keep_message()  # the model's limit, not the connection, cut it
            self.result.shown = self._deltas.shown
            if self.result.error is None and not self.result.complete:
                self.result.error = ModelError("stream", "the answer ended before it was complete")
            await self._drain()
        except BaseException:
            await self._abandon()
            raise
        return self.result

    # The reply

    def _take(self, event: ModelEvent) -> None:
        self.conversation.server_has_answered |= not isinstance(event, Retrying)
        self._keep_message()
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _text(self, event: TextDelta) -> None:
        self._show(self._shown.feed(event.text))

    def _show(self, text: str) -> None:
        if fresh := self._deltas.feed(text):
            self.conversation.emit(AgentMessageDelta(delta=fresh))

    def _reasoning(self, event: ReasoningDelta) -> None:
        raw = not event.summary
        self._think(self._thoughts[raw].feed(event.text), raw)

    def _think(self, text: str, raw: bool) -> None:
        if text and (self._shows_raw if raw else self._shows_summary):
            self.conversation.emit(AgentReasoningDelta(delta=text, raw=raw))

    def _thought(self, item: JSONObject) -> None:
        """Emit the reasoning that the settings show; the history always has all of it."""
        if self._shows_summary and (text := reasoning_text(item)):
            self.conversation.emit(AgentReasoning(text=text))
        if self._shows_raw and (text := reasoning_text(item, "content")):
            self.conversation.emit(AgentReasoningRaw(text=text))

    def _arguments(self, event: ArgumentsDelta) -> None:
        call = event.call_id, event.name
        if call not in self._previews:
            self._previews[call] = self.conversation.redactor.stream()
        self._preview(call, self._previews[call].feed(event.delta))

    def _preview(self, call: tuple[str, str], delta: str) -> None:
        if delta:
            self.conversation.emit(ArgumentsPreview(call_id=call[0], tool=call[1], delta=delta))

    def _let_go(self) -> None:
        """Emit what was held back of reasoning and arguments, when an item is complete."""
        for raw, held in self._thoughts.items():
            self._think(held.flush(), raw)
        while self._previews:
            call, held = self._previews.popitem()
            self._preview(call, held.flush())

    def _retrying(self, event: Retrying) -> None:
        self.result.retries = event.attempt
        most = self.conversation.model.stream_max_retries
        attempt = self._retried + event.attempt
        self.conversation.emit(
            stream_error(event.kind, event.reason, seconds=event.delay, attempt=attempt, most=most)
        )

    def _notice(self, event: Notice) -> None:
        self.conversation.emit(events.Warning(message=event.text))

    def _completed(self, event: Completed) -> None:
        self.result.complete = True
        self.conversation.replied(event.usage)
        if event.end_turn is False:
            self.result.follow_up = True

    def _started(self, event: ItemStarted) -> None:
        if event.kind == "web_search_call":
            self._searches[event.item_id] = monotonic()

    def _item(self, event: ItemDone) -> None:
        item, kind = event.item, event.item.get("type")
        self._let_go()
        if is_call(item):
            self._call(item)
        elif kind == "message" and item.get("role") == "assistant":
            self._show(self._shown.flush())
            self._message = item
        elif kind in _STORED:
            self.conversation.record(item)
            if kind == "reasoning":
                self._thought(item)
            elif is_finished_search(item):
                began = self._searches.pop(str(item.get("id")), None)
                self.turn.searched(item, 0.0 if began is None else monotonic() - began)

    def _keep_message(self) -> None:
        item, self._message = self._message, None
        if item is None:
            return
        self._deltas = _Deltas()
        self.conversation.record(item)
        if text := message_text(item):
            self.result.text = text
            self.conversation.emit(AgentMessage(message=text))

    def _call(self, item: JSONObject) -> None:
        """Record the call, then start it: after a crash in between it is not run twice."""
        call = self._recorded_call(item)
        refusal = self.budget.take_call()
        if refusal is not None:
            call.refusal = refusal
            return
        for found in calls_in([call.item]):
            call.running = self.turn.start(found)

    def _cut(self, event: CutCall) -> None:
        self._let_go()
        self._recorded_call(event.item).refusal = event.reason

    def _recorded_call(self, item: JSONObject) -> _Call:
        history = self.conversation.transcript
        call_id = history.unused_id(call_id_of(item))
        if item.get("call_id") != call_id:
            item = {**item, "call_id": call_id}
        if (name := self.conversation.offered_name(item)) is not None:
            item = {**item, WIRE_NAME: name}
        self.result.follow_up = True
        call = _Call(item)
        self._calls.append(call)
        self.conversation.record(item)
        return call

    # The outputs

    async def _drain(self) -> None:
        """Record the outputs in call order."""
        self._is_over = True
        while (at := self._recorded) < len(self._calls):
            running = self._calls[at].running
            if running is not None:
                await running.output()
            if self._recorded == at:
                await self._answer()

    async def _abandon(self) -> None:
        """Abort the calls; each one that began gets its one output before this returns."""
        self._is_over = True
        started = [call.running for call in self._calls if call.running is not None]
        for running in started:
            running.abort()
        for running in started:
            await running.settle()
        while self._recorded < len(self._calls):
            # If the journal has failed, the history in memory is still complete.
            with suppress(Fatal):
                await self._answer()

    def _ended(self, item: CallItem, output: ToolOutput) -> None:
        """Write an output before its end is told: in its place, or beside it until that is free."""
        conversation = self.conversation
        at = next((n for n, each in enumerate(self._calls) if _is_of(each, item)), None)
        if at is None or at < self._recorded:
            return
        if conversation.held is not None and conversation.held.keeps(self._calls[at].item, output):
            return
        answered = answered_item(item, output)
        if self._is_over and at == self._recorded:
            self._recorded += 1
            conversation.record(answered)
        else:
            conversation.journal.write("event_msg", {"type": EARLY_OUTPUT, "item": answered})

    async def _answer(self) -> None:
        call = self._calls[self._recorded]
        self._recorded += 1
        if call.running is None:
            self.conversation.record(output_item(call.item, call.refusal))
        else:
            output = await call.running.output()
            held = self.conversation.held
            if held is not None and held.keeps(call.item, output):
                return
            self.conversation.record(answered_item(call.running.item, output))


def _is_of(call: _Call, item: CallItem) -> bool:
    return call.running is not None and call.running.item is item


def reasoning_text(item: JSONObject, field: Literal["summary", "content"] = "summary") -> str:
    """The summary of a reasoning item, or its content; sections are joined by a blank line."""
    found = item.get(field)
    parts = found if isinstance(found, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


_HANDLERS: dict[type, Callable[[ModelRequestRun, Any], None]] = {
    TextDelta: ModelRequestRun._text,
    ReasoningDelta: ModelRequestRun._reasoning,
    ArgumentsDelta: ModelRequestRun._arguments,
    Retrying: ModelRequestRun._retrying,
    Notice: ModelRequestRun._notice,
    Completed: ModelRequestRun._completed,
    ItemStarted: ModelRequestRun._started,
    ItemDone: ModelRequestRun._item,
    CutCall: ModelRequestRun._cut,
}
