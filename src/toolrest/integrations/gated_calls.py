"""Calls that come through another framework: run behind the gate, or held for its approval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.errors import ToolCallError
from toolrest.gate.approval.pending import PendingApproval, PendingError
from toolrest.gate.call.understand import route
from toolrest.items import JSONObject, ToolOutput
from toolrest.policy.effects import Risk

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.gate.approval.request import ReviewDecision
    from toolrest.gate.call.explain import Explanation

_NO_APPROVAL = "not run: this call needs approval, and was not approved: {reason}"


class OfferedTool(Struct, frozen=True):
    """A tool as frameworks take it: a name, a description and the JSON Schema of its arguments."""

    name: str
    description: str
    schema: JSONObject


class FrameworkCall(Struct, frozen=True):
    """A call as a framework passes it on. `of_host`: the host program chose the tool, no model."""

    id: str
    tool: str
    arguments: Mapping[str, Any] | str
    of_host: bool = False


class GatedCalls:
    """The calls of one framework through one session.

    With `Toolrest(on_ask="defer")` a call that needs approval is not run: it comes back as a
    `PendingApproval`, the framework asks in its own way, and `resume` runs it. An approval counts
    for exactly this call (id, tool and arguments), once; with `home=` also in another process.
    With any other `on_ask` the session itself answers and nothing is held.
    """

    def __init__(self, rest: Toolrest) -> None:
        self.rest = rest
        approvals = rest.gate.services.approvals
        self.holds = approvals.unasked == "defer"
        """Whether calls that need approval are held for the framework."""
        if self.holds and approvals.deferring is not None:
            approvals.deferring.reuses = False  # each call waits for its own approval
        self._asked: dict[str, str | None] = {}
        """The calls that were asked about, by id; None for an id of different calls."""

    def offered(self) -> list[OfferedTool]:
        """The tools on offer, in the order models see them."""
        functions = [spec["function"] for spec in self.rest.specs("chat")]
        return [OfferedTool(f["name"], f["description"], f["parameters"]) for f in functions]

    def needs_approval(self, call: FrameworkCall) -> bool:
        """Whether a call would be held, without making it; for frameworks that ask beforehand."""
        if not self.holds or self.explain(call).verdict != Answer.ASK:
            if self.was_asked(call):
                del self._asked[call.id]
            return False
        same = self._asked.get(call.id, _text(call)) == _text(call)
        self._asked[call.id] = _text(call) if same else None
        return True

    def explain(self, call: FrameworkCall) -> Explanation:
        """The decision on a call and its reason."""
        return self.rest.explain(call.tool, call.arguments)

    def was_asked(self, call: FrameworkCall) -> bool:
        """Whether `needs_approval` was true of this call, in this process."""
        return self._asked.get(call.id) == _text(call)

    async def call(self, call: FrameworkCall) -> ToolOutput | PendingApproval:
        """Run a call; what needs approval first is held instead."""
        turn = self.rest.turn()
        async with turn.of_host() if call.of_host else turn:
            item = self.rest.item(call.id, call.tool, call.arguments)
            output = await turn.start(item).output()
        return self._held_or(call, output)

    async def resume(
        self, call: FrameworkCall, answer: ReviewDecision = "approved", note: str = ""
    ) -> ToolOutput | PendingApproval:
        """Answer a held call and run it. One that is not held here, or has changed, asks anew."""
        held = self.held(call)
        if held is None:
            return await self.call(call)
        try:
            output = await self.rest.resume(held, answer, note)
        except PendingError as error:
            return ToolOutput.error(f"not run: {error}", "approval_denied")
        return self._held_or(call, output)

    async def finish(self, call: FrameworkCall, *, approved: bool) -> ToolOutput:
        """Run a call that the framework has asked about beforehand, with its approval or not.

        A critical call also has to be one that `needs_approval` saw: a framework's "always
        approve" is not about it.
        """
        result, asked = await self.call(call), self.was_asked(call)
        approved = approved and (asked or call.id not in self._asked)
        if asked:
            del self._asked[call.id]
        if not isinstance(result, PendingApproval):
            return result
        if approved and (asked or result.shown["risk"] != Risk.CRITICAL.label):
            result = await self.resume(call)
        return not_approved(result) if isinstance(result, PendingApproval) else result

    def held(self, call: FrameworkCall) -> PendingApproval | None:
        """The approval that exactly this call waits for, of whatever process with this home."""
        desk = self.rest.gate.services.approvals.deferring
        if desk is None or not self.holds:
            return None
        item = self.rest.item(call.id, call.tool, call.arguments)
        try:
            found = route(item, self.rest.gate.registry)
        except ToolCallError:
            return None  # running it says what is wrong
        wanted = (call.id, found.tool.name, found.text, desk.around.workspace)
        waiting = (
            pending
            for pending in reversed(desk.store.listed())
            if (pending.call_id, pending.tool, pending.arguments, pending.workspace) == wanted
            and pending.shown["retry_reason"] is None  # that call has its output already
            and desk.store.state(pending) in ("waiting", "answered")
        )
        return next(waiting, None)

    def _held_or(self, call: FrameworkCall, output: ToolOutput) -> ToolOutput | PendingApproval:
        if output.failure is None or output.failure.kind != "approval_denied":
            return output
        return self.held(call) or output


def _text(call: FrameworkCall) -> str:
    return json.dumps([call.tool, call.arguments], sort_keys=True, default=str)


def not_approved(pending: PendingApproval) -> ToolOutput:
    """The output of a held call that the framework has no approval for."""
    message = _NO_APPROVAL.format(reason=pending.shown["reason"])
    return ToolOutput.error(message, "approval_denied")


def shown(pending: PendingApproval) -> JSONObject:
    """A held call as JSON for the person who is asked; values that look secret are redacted."""
    return {"id": pending.id, "tool": pending.tool, **pending.shown}


def as_mapping(arguments: str) -> Mapping[str, Any] | str:
    """Arguments as a mapping; text that is no JSON object stays, for the gate to answer."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments
