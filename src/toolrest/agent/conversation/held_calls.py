"""Calls that wait for an approval: the turn ends, and they get their output when it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.agent.conversation.result import TurnResult
from toolrest.agent.history.history import answered_item, output_item
from toolrest.events import ApprovalDeferred, Event
from toolrest.gate.approval.pending import PendingError
from toolrest.items import JSONObject, ToolOutput
from toolrest.wire.items.pairing import call_id_of

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.gate.approval.pending import PendingApproval
    from toolrest.gate.approval.request import ReviewDecision

_SKIPPED = "not run: the user went on before it was approved"
_NOT_HERE = "not run here: its approval was used in another process, or has expired"


class HeldCalls:
    """The held calls of a session, also of one that was resumed (`on_ask="defer"`)."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        desk = conversation.rest.session.approvals.deferring
        desk.ask_for_each()
        open_ids = set(map(call_id_of, conversation.transcript.open_calls()))
        self._ids = {p.call_id for p in conversation.rest.pending if p.call_id in open_ids}
        conversation.rest.subscribe(self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, ApprovalDeferred):
            self._ids.add(event.call_id)

    def __bool__(self) -> bool:
        return bool(self._ids)

    @property
    def pending(self) -> list[PendingApproval]:
        """The approvals that the held calls wait for, oldest first."""
        if not self._ids:
            return []
        return [p for p in self._conversation.rest.pending if p.call_id in self._ids]

    def result(self) -> TurnResult:
        """The result of a turn that still waits."""
        total, own = self._conversation.accounting.total, self._conversation.id
        return TurnResult(
            "pending", "pending", None, None, total, pending=self.pending, session_id=own
        )

    def keeps(self, call: JSONObject, output: ToolOutput) -> bool:
        """Whether a call gets no output yet."""
        call_id = call_id_of(call)
        if output.failure is not None and output.failure.kind == "approval_denied":
            return call_id in self._ids
        self._ids.discard(call_id)  # it was answered while the call still waited
        return False

    def skip(self) -> None:
        """Record an output for each held call: the user said something else instead.

        Their approvals are used up, so that no late answer runs them.
        """
        if not self._ids:
            return
        waiting = {pending.call_id: pending for pending in self.pending}
        for call in self._conversation.transcript.open_calls():
            call_id = call_id_of(call)
            if call_id in self._ids:
                withdrawn = self._withdraw(waiting.get(call_id))
                self._conversation.record(output_item(call, _SKIPPED if withdrawn else _NOT_HERE))
        self._ids.clear()

    def _withdraw(self, pending: PendingApproval | None) -> bool:
        if pending is None:
            return False
        desk = self._conversation.rest.session.approvals.deferring
        return desk.store.withdraw(pending, "the user went on")

    async def resume(
        self, pending: PendingApproval, answer: ReviewDecision | None, note: str
    ) -> None:
        """Answer an approval, run its call and record the output.

        PendingError when no call waits for it here; for others see `rest.resume`. When the call
        has to be asked about anew it is held again.
        """
        if pending.call_id not in self._ids:
            raise PendingError(f"{pending.id}: no call of this conversation waits for it any more")
        rest = self._conversation.rest
        output = await rest.resume(pending, answer, note)
        asked_anew = any(p.call_id == pending.call_id for p in rest.pending)
        if asked_anew:
            return
        self._ids.discard(pending.call_id)
        self._conversation.record(answered_item(pending.item, output))
