"""`Conversation`: a model, its tools and a journal; it runs a prompt to the turn's result."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias

from toolrest import events
from toolrest.agent.conversation.answer_form import AnswerForm
from toolrest.agent.conversation.events import TaskComplete, UserMessage
from toolrest.agent.conversation.loop import ABORTED, Loop
from toolrest.agent.conversation.output_type import OutputType
from toolrest.agent.conversation.preload import WarmUp
from toolrest.agent.conversation.prompt import Opening, base_instructions, opening_for
from toolrest.agent.conversation.result import (
    AgentError,
    Denials,
    Output,
    SessionHooks,
    TurnEnd,
    TurnResult,
    end_of,
)
from toolrest.agent.conversation.turn_events import TurnEvents
from toolrest.agent.conversation.usage import Accounting, Budget, difference, fixed_tokens
from toolrest.agent.history.history import History, interrupted_item, message, own_text
from toolrest.agent.history.journal import NoJournal, SessionJournal, turn_context
from toolrest.agent.history.tokens import usage_json
from toolrest.errors import Fatal, Rejected, ToolrestError
from toolrest.events import Event
from toolrest.gate.tool.wire_names import is_legal
from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps
from toolrest.wire.model import Model, ModelRequest, Usage
from toolrest.wire.model_facts import price_of

if TYPE_CHECKING:
    from toolrest.agent.conversation.held_calls import HeldCalls
    from toolrest.agent.rest import Toolrest
    from toolrest.agent.subagents.subagents import SubAgents
    from toolrest.gate.approval.pending import PendingApproval
    from toolrest.gate.approval.request import ReviewDecision
    from toolrest.gate.output.redact import Redactor
    from toolrest.gate.session import Shared

Prompt: TypeAlias = "str | Sequence[JSONObject]"
"""A text, or message items (`conversation.prompt` makes them of a text with images)."""
StopReason: TypeAlias = Literal["interrupted", "terminated", "timeout"]
_log = logging.getLogger("toolrest")


class Conversation(Generic[Output]):
    """A conversation with a model: turns that remember, typed answers, pending approvals.

    ```python
    async with Agent("openai:gpt-5.5", tools=["files"]).session() as chat:
        print((await chat.run("What is in README.md?")).text)
    ```

    `agent.session()` and `open_session` make it, or put it together yourself:
    `Conversation(Toolrest(".", tools=["all"]), model)`. It owns the Toolrest and (with
    `owns_model`) the model that it is given, and closes them. Many can live in one process;
    nothing is shared between them.

    With `raises`, a turn without an answer is an AgentError, as `agent.session()` has it; else
    the result of the turn says so. `output` is the type of the answers. With `waits`, the first
    request waits for the MCP servers that are configured, unless `mcp.wait` is false. In an
    `interactive` one a command that nothing here can confine is an answer to the model; else it
    ends the turn.
    """

    def __init__(
        self,
        rest: Toolrest,
        model: Model,
        *,
        journal: SessionJournal | None = None,
        history: Iterable[JSONObject] = (),
        usage: Usage | None = None,
        spent: Mapping[str, Usage] | None = None,
        opening: Opening | None = None,
        instructions: str | None = None,
        hooks: SessionHooks | None = None,
        agents: SubAgents | None = None,
        owns_model: bool = True,
        holds_calls: bool = False,
        shares: Shared | None = None,
        output: OutputType[Output] | None = None,
        raises: bool = False,
        waits: bool = True,
        interactive: bool = False,
    ) -> None:
        self.rest = rest
        """The tools of the conversation."""
        self.model = model
        self.journal = journal if journal is not None else NoJournal()
        self.transcript = History(history)
        self.opening = opening if opening is not None else opening_for(rest)
        if instructions is None:
            instructions = base_instructions(rest.settings)
        self.instructions = instructions
        self.hooks = hooks
        self.agents = agents
        self._owns_model = owns_model
        self._output: OutputType[Output] = OutputType(str) if output is None else output
        self._raises = raises
        self._waits = waits
        started_by = None if shares is None else shares.conversation
        above = None if started_by is None else started_by.value
        self.interactive: bool = interactive or (above is not None and above.interactive)
        """Whether a person goes along with the turns: theirs, and those of its sub-agents."""
        self.accounting: Accounting = Accounting(
            rest.settings.model_context_window or model.context_window,
            rest.settings.model_auto_compact_token_limit,
            fixed_tokens(self.instructions, lambda: rest.offered(model.wire)),
            usage or Usage(),
            spent={model.name: Usage()} | dict(spent or {}),
            price=price_of(rest.config, model),
            parent=None if above is None else above.accounting,
            emit=self.emit,
            write=lambda line: self.journal.write("event_msg", line),
        )
        rest.session.conversation.bind(self)
        self._cost_before: float | None = None
        if rest.has_servers:
            from toolrest.agent.mcp.server_requests import sampler

            rest.sample_with(sampler(self))
        self.warnings: list[str] = list(rest.warnings)
        self.held = self._held_calls() if holds_calls else None
        """Calls that wait for an approval; None where the model gets a denial instead."""
        self.server_has_answered = False  # whether the model's server has ever answered
        self._added: deque[JSONObject] = deque()
        self.takes_messages = False  # whether the model will read what is said to the turn
        self._task: asyncio.Task[TurnEnd] | None = None
        self._stopping: StopReason | None = None
        self.ends_after_calls = False
        """Whether the turn ends once the calls of this reply have, without another request."""
        self._opened = False
        self._warm_up: WarmUp | None = None
        self.weak_sandbox_said = False
        """Whether the person has read of a weak sandbox, in this run of the session or before."""
        self._unwritten: deque[JSONObject] = deque()  # events for the journal of an open session

    def _held_calls(self) -> HeldCalls | None:
        if self.rest.session.approvals.unasked != "defer":
            return None
        from toolrest.agent.conversation.held_calls import HeldCalls

        return HeldCalls(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop what runs, then close the tools, the model and the journal."""
        await self.interrupt()
        if self._warm_up is not None:
            self._warm_up.stop()
        try:
            if self.agents is not None:
                await self.agents.aclose()
            await self.rest.aclose()
            if self._owns_model:
                await self.model.aclose()
        finally:
            self.journal.close()

    # Talking

    @property
    def id(self) -> str:
        """The session's id, for resuming or forking it."""
        return self.rest.session_id

    @property
    def history(self) -> list[JSONObject]:
        """All messages, calls and outputs so far, as items of the Responses API."""
        return list(self.transcript.items)

    @property
    def pending(self) -> list[PendingApproval]:
        """The approvals that the last turn waits for (`on_ask="defer"`), the oldest first."""
        return [] if self.held is None else self.held.pending

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._task is not None

    async def run(
        self,
        prompt: Prompt,
        *,
        budget: Budget | None = None,
        output_schema: JSONObject | None = None,
        form: AnswerForm | None = None,
    ) -> TurnResult[Output]:
        """Run one turn to its end. Without an answer it fails, and the conversation stays usable.

        It fails by AgentError where the conversation `raises`, else in the result's status.
        An answer that is not of the conversation's `output` type, or does not meet `output_schema`
        (or `form`), goes back to the model with what is wrong; after the last retry the turn fails
        as `schema_unmet`. With `on_ask="defer"` the status may be `pending`: the turn goes on with
        `resume`. Cancelling the task that waits here records an interrupted turn and then cancels.
        """
        messages = _messages(prompt)
        output: OutputType[Any] = self._output
        if output_schema is not None and form is None:
            form = AnswerForm.of_schema(output_schema)
        if form is not None:
            output = OutputType(str)
        loop = Loop(self, budget or Budget.of(self.rest.settings), form or output.form)
        result = await self._run(loop, lambda: self._begin_turn(loop, messages))
        return self._answered(result, output)

    async def resume(
        self, pending: PendingApproval, answer: ReviewDecision = "approved", note: str = ""
    ) -> TurnResult[Output]:
        """Answer a pending approval; once none is left, the turn goes on to its answer.

        Also in another process than the one that asked. A call is run at most once; PendingError
        has the reason when the approval cannot be used.
        """
        if self.held is None:
            raise ToolrestError('this session keeps no pending approvals: use on_ask="defer"')
        await self.held.resume(pending, answer, note)
        if self.held:
            return self.held.result()
        return await self.run([])

    async def compact(self, note: str = "") -> TurnResult[Any]:
        """Replace the conversation by a summary now; `note` says what it should keep."""
        loop = Loop(self, Budget.of(self.rest.settings))
        return await self._run(loop, lambda: loop.compact(note))

    async def _run(self, loop: Loop, work: Callable[[], Awaitable[TurnEnd]]) -> TurnResult[Any]:
        if self._task is not None:
            raise RuntimeError("a turn is running; add to it with say(), or await its end")
        denials = Denials()
        unsubscribe = self.rest.subscribe(denials)
        self._stopping = None
        self.ends_after_calls = False
        self._task = asyncio.ensure_future(self._turn(loop, work))
        self.takes_messages = True
        cancelled = False
        try:
            while not self._task.done():
                try:
                    await asyncio.wait({self._task})
                except asyncio.CancelledError:
                    cancelled = True
                    self._task.cancel()
            end = end_of(self._task)
        finally:
            self._task, self.takes_messages = None, False
            unsubscribe()
        result = self._result(end, loop.budget, denials)
        if cancelled:
            raise asyncio.CancelledError
        return result

    def stream(
        self,
        prompt: Prompt,
        *,
        budget: Budget | None = None,
        output_schema: JSONObject | None = None,
    ) -> TurnEvents[Output]:
        """The events of one turn: `async with chat.stream("…") as events: async for event in …`."""
        return TurnEvents(
            self, lambda: self.run(prompt, budget=budget, output_schema=output_schema)
        )

    def say(self, prompt: Prompt) -> None:
        """Add a message to the running turn; the model gets it with its next request."""
        self._added.extend(_messages(prompt))

    async def interrupt(self, reason: StopReason = "interrupted") -> None:
        """End the running turn; every call that runs gets its output. Without one, do nothing."""
        task = self._task
        if task is None:
            return
        self._stopping = self._stopping or reason
        task.cancel()
        await asyncio.wait({task})

    async def _begin_turn(self, loop: Loop, messages: list[JSONObject]) -> TurnEnd:
        if not self._opened:
            unknown = self._waits and self.rest.settings.mcp.wait
            await self.rest.wait_for_mcp(required=True, unknown=unknown)
        if not self._opened and self.hooks is not None:
            texts = await self.hooks.session_start()
            messages = [*(message("developer", text) for text in texts), *messages]
        self.warm_up()
        return await loop.run(messages)

    def warm_up(self) -> WarmUp:
        """Prepare the first call beside what goes on: its modules, and the kind of sandbox."""
        if self._warm_up is None:
            self._warm_up = WarmUp(self.rest.session.registry.listed(), self.rest.session)
            self._warm_up.start()
        return self._warm_up

    async def _turn(self, loop: Loop, work: Callable[[], Awaitable[TurnEnd]]) -> TurnEnd:
        self.accounting.begin_turn(loop.budget.max_tokens)
        self._cost_before = self.accounting.cost()
        try:
            return await work()
        except asyncio.CancelledError:
            return self._interrupted(loop)
        except Rejected as error:
            return TurnEnd("failed", "denied", error.message, loop.text)
        except Exception as error:
            _log.exception("a turn ended by an error in Toolrest itself")
            reason = f"an error in Toolrest itself: {type(error).__name__}: {error}"
            return TurnEnd("failed", "internal_error", reason, loop.text)

    def _interrupted(self, loop: Loop) -> TurnEnd:
        why = self._stopping or "interrupted"
        with suppress(Fatal):
            self.record(message("user", ABORTED))
            self.journal.write("event_msg", {"type": "turn_aborted", "reason": "interrupted"})
        if why == "timeout":
            return TurnEnd("budget", "timeout", "the time limit was reached", loop.text)
        return TurnEnd("interrupted", why, "the turn was stopped", loop.text)

    def _answered(self, result: TurnResult[Any], output: OutputType[Any]) -> TurnResult[Output]:
        """The result with its answer; AgentError without one, where the conversation raises."""
        result.pending = self.pending
        if result.status == "completed":
            result._output = output.read(result.text)
        elif self._raises and result.status != "pending":
            raise AgentError(result, result.error or f"the run was {result.status}")
        return result

    def _result(self, end: TurnEnd, budget: Budget, denials: Denials) -> TurnResult[Any]:
        self.emit(
            TaskComplete(
                status=end.status,
                reason=end.reason,
                last_agent_message=end.text,
                error=end.error,
                usage=usage_json(self.accounting.turn),
                cost=difference(self.accounting.cost(), self._cost_before),
            )
        )
        text = end.text if end.text is None else self.redactor.redact(end.text)
        error = end.error if end.error is None else self.redactor.redact(end.error)
        refused = denials.to_json()
        return TurnResult(
            end.status, end.reason, text, error, self.accounting.turn, refused, budget.turns,
            budget.tool_calls, session_id=self.id,
        )  # fmt: skip

    # Former names (0.2)

    @property
    def thread_id(self) -> str:
        """The session's id. Deprecated: `id`."""
        _warn("Conversation.thread_id is Conversation.id now")
        return self.id

    @property
    def session(self) -> Conversation[Output]:
        """The conversation itself. Deprecated: there is no session inside of it any more."""
        _warn("Conversation.session is the Conversation itself now")
        return self

    # For the loop

    @property
    def redactor(self) -> Redactor:
        """The redactor that keeps secrets out of events and the journal."""
        return self.rest.session.redactor

    def emit(self, event: Event) -> None:
        """Emit an event to every listener."""
        self.rest.session.bus.emit(event)

    def record(self, item: JSONObject) -> None:
        """Add an item to the history and the journal; Fatal when that cannot be written."""
        text = dumps(item)
        self.transcript.append(item, text)
        self.journal.write_text("response_item", text, item)

    def begin(self, messages: Sequence[JSONObject], turn_id: str) -> None:
        """Open the session if need be, and record the user's messages."""
        if not self._opened:
            self.warnings += self.rest.unoffered(self.model.wire).values()
        while self.warnings:
            self.emit(events.Warning(message=self.warnings.pop(0)))
        self.close_open_calls()
        news = self.opening.news(self.transcript) if not self._opened else []
        for item in news:
            self.record(item)
        self._opened = True
        cwd = self.rest.cwd
        settings, model = self.rest.settings, self.model.name
        self.journal.write("turn_context", turn_context(settings, model, cwd, turn_id))
        self._write_events()
        self._record_messages(messages)

    def _record_messages(self, items: Sequence[JSONObject]) -> None:
        for item in items:
            self.record(item)
        for item in items:
            if item.get("role") == "user":
                self.emit(UserMessage(message=own_text(item)))

    def says_weak_sandbox(self, message: str) -> bool:
        """Whether the person is to read this; False once it was said, by an earlier run too."""
        if self.weak_sandbox_said:
            return False
        self.weak_sandbox_said = True
        self._unwritten.append({"type": events.WeakSandbox.type, "message": message})
        if self._opened:
            self._write_events()
        return True

    def _write_events(self) -> None:
        while self._unwritten:
            self.journal.write("event_msg", self._unwritten.popleft())

    def close_open_calls(self) -> None:
        """Record an output for calls that a crash interrupted. None of them is run again."""
        if self.held is not None:
            self.held.skip()
        for call in self.transcript.open_calls():
            self.record(interrupted_item(call))

    @property
    def has_pending(self) -> bool:
        """Whether messages were added to the running turn."""
        return bool(self._added)

    def take_pending(self) -> None:
        """Record the messages that were added to the running turn."""
        while self._added:
            self._record_messages([self._added.popleft()])

    def request(
        self,
        turn_id: str,
        schema: JSONObject | None,
        *,
        items: Sequence[JSONObject] | None = None,
        plain: bool = False,
        may_call: bool = True,
    ) -> ModelRequest:
        """The next request: the whole history, or other items, with or without tools."""
        settings, registry = self.rest.settings, self.rest.session.registry
        registry.asked = registry.asked or not plain
        return ModelRequest(
            model=self.model.name,
            items=self.transcript.items if items is None else items,
            instructions=self.instructions,
            tools=() if plain else self.rest.offered(self.model.wire),
            parallel_tool_calls=not plain and self.rest.config.family.parallel,
            session_id=self.id,
            turn_id=turn_id,
            output_schema=schema,
            reasoning_effort=settings.model_reasoning_effort,
            reasoning_summary=settings.model_reasoning_summary,
            verbosity=settings.model_verbosity,
            tool_choice="auto" if may_call else "none",
            tokens=None if self.accounting.window is None else self.tokens,
        )

    def offered_name(self, call: JSONObject) -> str | None:
        """The name of the offered tool that a call means by one no API takes; None for others."""
        name, space = call.get("name"), call.get("namespace")
        if not isinstance(name, str) or is_legal(name):
            return None
        registry = self.rest.session.registry
        before, _, bare = name.rpartition(".")
        tool = registry.get(name, space if isinstance(space, str) else None)
        tool = tool or (registry.get(bare, before) if before else None)
        if tool is None or not (tool.offered and registry.offers(tool)):
            return None
        return registry.wire_name(tool)

    # Tokens

    def count(self, usage: Usage | None) -> None:
        """Count the tokens of a reply."""
        self.accounting.count(usage, self.model.name)

    def replied(self, usage: Usage | None) -> None:
        """Count a reply: its usage is the size of the history up to here."""
        if self.rest.settings.model_context_window is None:  # else the server may know better
            self.accounting.window = self.model.context_window or self.accounting.window
        self.accounting.last = usage or Usage()
        self.transcript.replied()
        self.count(usage)

    @property
    def usage(self) -> Usage:
        """The tokens of the whole session, earlier runs of it included."""
        return self.accounting.total

    @property
    def tokens(self) -> int:
        """An estimate of the tokens of the next request."""
        return self.accounting.tokens(self.transcript)

    def is_full(self) -> bool:
        """Whether the history has to be compacted."""
        return self.accounting.is_full(self.transcript)

    def replace(self, items: list[JSONObject], summary: str) -> None:
        """Go on from these items instead of the history so far."""
        self.transcript.replace(items)
        self.accounting.last = Usage()
        self.journal.write("compacted", {"message": summary, "replacement_history": items})


def _messages(prompt: Prompt) -> list[JSONObject]:
    given: Any = prompt
    if isinstance(given, str):
        return [message("user", given)]
    if not isinstance(given, Sequence) or not all(isinstance(each, dict) for each in given):
        raise TypeError(
            'a prompt is a text, run("…"), or a list of messages, '
            f'run([{{"role": "user", "content": "…"}}]); not {type(given).__name__}'
        )
    return list(given)


def _warn(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=3)
