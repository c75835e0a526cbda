"""Calls that come through another framework: run behind the gate, or held for its approval."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolrest.errors import ToolCallError
from toolrest.gate.approval.pending import PendingApproval, PendingError
from toolrest.gate.call.understand import route
from toolrest.gate.call.would_ask import would_ask
from toolrest.items import JSONObject, ToolOutput
from toolrest.policy.effects import Risk

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.gate.approval.pending_store import FileApprovals
    from toolrest.gate.approval.request import ApprovalRequest, ReviewDecision
    from toolrest.gate.call.explain import Explanation

_MOST_HELD = 150  # below what the store takes of one session
_NO_APPROVAL = "not run: this call needs approval, and was not approved: {reason}"
_CHANGED = (
    "not run: this call has changed since it was approved. Call it again to have it asked "
    "about: {reason}"
)


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
    for exactly this call (id, tool and arguments, and its files as they were), once; with `home=`
    also in another process. With any other `on_ask` the session itself answers and nothing is held.
    """

    def __init__(self, rest: Toolrest) -> None:
        self.rest = rest
        approvals = rest.session.approvals
        self._desk = approvals.deferring if approvals.unasked == "defer" else None
        if self._desk is not None:
            self._desk.ask_for_each()
        self._asked: dict[str, str | None] = {}
        """The calls that were asked about, by id; None for an id of different calls."""
        self._holding: dict[str, PendingApproval] = {}
        """What waits for the framework's approval, oldest first."""

    @property
    def defers(self) -> bool:
        """Whether the framework asks, not the session."""
        return self._desk is not None

    def offered(self) -> list[OfferedTool]:
        """The tools on offer, in the order models see them."""
        functions = [spec["function"] for spec in self.rest.specs("chat")]
        return [OfferedTool(f["name"], f["description"], f["parameters"]) for f in functions]

    async def needs_approval(self, call: FrameworkCall) -> bool:
        """Whether a call needs approval, without making it; for frameworks that ask beforehand.

        If it does, it is held as it is now: `finish` runs that and nothing else.
        """
        if self._desk is None:
            return False
        item = self.rest.item(call.id, call.tool, call.arguments)
        request = await would_ask(self.rest.session, item, of_host=call.of_host)
        if request is None:
            self._forget(call)
            return False
        same = self._asked.pop(call.id, call_text(call)) == call_text(call)
        self._asked[call.id] = call_text(call) if same else None
        await asyncio.to_thread(self._hold, self._desk, call, request)
        return True

    def _hold(self, desk: FileApprovals, call: FrameworkCall, request: ApprovalRequest) -> None:
        """Store the request, unless it is stored already."""
        held = self._find(call)
        if held is not None and held.pin != desk.around.pin(request):
            desk.store.withdraw(held)
            held = None
        if held is None:
            with suppress(PendingError, OSError):  # making the call says what is wrong
                held = desk.store.add(request, desk.around, desk.expire, reuse=False)
        if held is not None:
            self._keep(desk, held)

    def _keep(self, desk: FileApprovals, held: PendingApproval) -> None:
        """Note what is held. A framework does not say which calls were rejected, so the oldest of
        too many are given up; otherwise no call could be held any more after enough of them.
        """
        self._holding[held.id] = held
        while len(self._holding) > _MOST_HELD:
            oldest = self._holding.pop(next(iter(self._holding)))
            self._asked.pop(oldest.call_id, None)
            desk.store.withdraw(oldest)

    def explain(self, call: FrameworkCall) -> Explanation:
        """The decision on a call and its reason."""
        return self.rest.explain(call.tool, call.arguments)

    def was_asked(self, call: FrameworkCall) -> bool:
        """Whether `needs_approval` was true of this call, in this process."""
        return self._asked.get(call.id) == call_text(call)

    def _forget(self, call: FrameworkCall) -> None:
        if self.was_asked(call):
            del self._asked[call.id]

    async def call(self, call: FrameworkCall) -> ToolOutput | PendingApproval:
        """Run a call; what needs approval first is held instead."""
        result = await self._made(call)
        if self._desk is not None and isinstance(result, PendingApproval):
            await asyncio.to_thread(self._keep, self._desk, result)
        return result

    async def _made(self, call: FrameworkCall) -> ToolOutput | PendingApproval:
        turn = self.rest.turn()
        async with turn.of_host() if call.of_host else turn:
            item = self.rest.item(call.id, call.tool, call.arguments)
            output = await turn.start(item).output()
        return await self._held_or(call, output)

    async def resume(
        self, call: FrameworkCall, answer: ReviewDecision = "approved", note: str = ""
    ) -> ToolOutput | PendingApproval:
        """Answer a held call and run it. One that is not held here, or has changed, asks anew.

        With other arguments than those that were held, neither is approved: what waited under the
        call's id is given up, or the next approval, given for what is shown then, would run it.
        """
        held = await self.held(call)
        if held is None:
            await asyncio.to_thread(self._give_up, call)
            return await self.call(call)
        self._holding.pop(held.id, None)
        try:
            output = await self.rest.resume(held, answer, note)
        except PendingError as error:
            return ToolOutput.error(f"not run: {error}", "approval_denied")
        return await self._held_or(call, output)

    async def finish(
        self, call: FrameworkCall, *, approved: bool, always: bool = False
    ) -> ToolOutput:
        """Run a call that the framework has asked about beforehand, with its approval or not.

        It has to be one that `needs_approval` held, and unchanged since: otherwise it is not what
        was approved. `always`: the framework's approval is for every call of the tool, whether it
        was shown or not; that is not about a critical one.
        """
        clear = self._asked.get(call.id, call_text(call)) == call_text(call)
        held = await self.held(call) if approved or call.id in self._asked else None
        self._forget(call)
        if held is not None:
            return await self._finish_held(call, held, approved=approved and clear)
        result = await self._made(call)
        if isinstance(result, ToolOutput):
            return result
        if approved and always and clear and result.shown["risk"] != Risk.CRITICAL.label:
            return await self.settled(await self.resume(call))
        return await self.settled(result)

    async def _finish_held(
        self, call: FrameworkCall, held: PendingApproval, *, approved: bool
    ) -> ToolOutput:
        if not approved:
            return await self.settled(held)
        return await self.settled(await self.resume(call), _CHANGED)

    async def held(self, call: FrameworkCall) -> PendingApproval | None:
        """The approval that exactly this call waits for, of whatever process with this home."""
        return None if self._desk is None else await asyncio.to_thread(self._find, call)

    def _find(self, call: FrameworkCall) -> PendingApproval | None:
        desk = self._desk
        if desk is None:
            return None
        item = self.rest.item(call.id, call.tool, call.arguments)
        try:
            found = route(item, self.rest.session.registry, self.rest.session.servers)
        except ToolCallError:
            return None  # running it says what is wrong
        wanted = (found.tool.name, found.text, desk.around.workspace)
        waiting = (
            pending
            for pending in reversed(desk.store.waiting(call_id=call.id))
            if (pending.tool, pending.arguments, pending.workspace) == wanted
            and pending.shown["retry_reason"] is None  # that call has its output already
        )
        return next(waiting, None)

    def _give_up(self, call: FrameworkCall) -> None:
        """Use up what waits under a call's id for the same tool."""
        if self._desk is None:
            return
        around = self._desk.around
        for pending in self._desk.store.waiting(call_id=call.id, tool=call.tool):
            if pending.workspace == around.workspace and pending.shown["retry_reason"] is None:
                self._holding.pop(pending.id, None)
                self._desk.store.withdraw(pending)

    async def _held_or(
        self, call: FrameworkCall, output: ToolOutput
    ) -> ToolOutput | PendingApproval:
        if output.failure is None or output.failure.kind != "approval_denied":
            return output
        return await self.held(call) or output

    async def settled(
        self, result: ToolOutput | PendingApproval, message: str = _NO_APPROVAL
    ) -> ToolOutput:
        """The output of a call; one that is still held is refused, and its approval used up."""
        if isinstance(result, ToolOutput):
            return result
        if self._desk is not None:
            self._holding.pop(result.id, None)
            await asyncio.to_thread(self._desk.store.withdraw, result)
        return ToolOutput.error(message.format(reason=result.shown["reason"]), "approval_denied")


def call_text(call: FrameworkCall) -> str:
    """A call's tool and arguments as text: the same for the same call, whatever its id is."""
    return json.dumps([call.tool, call.arguments], sort_keys=True, default=str)


def is_same(one: FrameworkCall, other: FrameworkCall) -> bool:
    """Whether two calls are of the same tool with the same arguments, whatever their ids are."""
    return call_text(one) == call_text(other)


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
