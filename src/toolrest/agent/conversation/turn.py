"""A session's turn: it takes a model's reply as it came, and can be undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolrest.gate.call.turn import CallTurn
from toolrest.items import Answered, JSONObject

if TYPE_CHECKING:
    from toolrest.agent.undo.turn_checkpoint import Saver, TurnCheckpoint
    from toolrest.gate.call.understand import ResolvedCall
    from toolrest.gate.call.walk import Gate
    from toolrest.gate.decision.repeated_calls import LoopWatch
    from toolrest.policy.effects import Effects


class Turn(CallTurn):
    """Calls that belong together; also takes a model's reply as JSON and answers in kind."""

    def __init__(
        self,
        gate: Gate,
        before_mutation: Callable[[], Awaitable[None]] | None = None,
        commit: Callable[[], Awaitable[None]] | None = None,
        saver: Saver | None = None,
        loops: LoopWatch | None = None,
    ) -> None:
        super().__init__(gate, before_mutation, commit, loops)
        self.prompt = ""
        """The user's message that the turn answers, for the list of what can be undone."""
        self._checkpoint: TurnCheckpoint | None = None
        if saver is not None:
            from toolrest.agent.undo.turn_checkpoint import TurnCheckpoint

            self._checkpoint = TurnCheckpoint(saver, gate.services.bus, self.id)

    async def before_mutation(self, effects: Effects, label: str = "") -> None:
        """Save the workspace before the turn's first change."""
        label = f"{self.prompt} | {label}" if self.prompt else label
        if self._checkpoint is not None:
            await self._checkpoint.before(effects, label)
        await super().before_mutation(effects, label)

    @contextmanager
    def mutating(self, call: ResolvedCall) -> Iterator[None]:
        """Note when a call runs: undo keeps what others write between calls."""
        if self._checkpoint is None:
            yield
            return
        try:
            with self._checkpoint.spans.calling():
                yield
        finally:
            if not self._ends_with_its_call(call):
                self._checkpoint.spans.give_up()

    def _ends_with_its_call(self, call: ResolvedCall) -> bool:
        effects, services = call.effects, self._gate.services
        if effects.calls or effects.is_unknown or self._gate.hooks is not None:
            return False
        runner = services.runner
        if runner is None:
            return not effects.runs
        if effects.runs and (call.ctx.outside or not effects.confined):
            return False
        # What a container or a virtual machine writes may come late, or by another clock.
        if effects.runs and (runner.confinement.backend or runner.confinement.external):
            return False
        return not runner.sessions.list()

    async def after_calls(self) -> None:
        """Record what the turn changed, for undo."""
        if self._checkpoint is not None:
            if self.left_behind:
                self._checkpoint.spans.give_up()
            await self._checkpoint.after()

    async def answer(self, reply: Any) -> list[Any]:
        """Run every tool call in a reply; the items to send back, in call order.

        Of a stream (or a list of its events) the model's own message comes first. TypeError for
        what is no reply.
        """
        from toolrest.wire.apis.sdk_replies import read_reply
        from toolrest.wire.items.decode import calls_in
        from toolrest.wire.items.encode import encode

        items, streamed = await read_reply(reply)
        calls = calls_in(items)
        started = [self.start(item) for item in calls]
        answered = [Answered(call.item, await call.output()) for call in started]
        if streamed is None or not calls:
            # On Chat Completions only users may show images: OpenAI's own server refuses others.
            return encode(answered, images="user_message")
        outputs = [encode([each])[0] | _failed(each) for each in answered]
        return streamed.messages(outputs)


def _failed(answered: Answered) -> JSONObject:
    return {"failed": True} if answered.output.failed else {}
