"""`on_ask = "defer"`: a question is written down, and the call may be made again after a yes."""

from __future__ import annotations

import asyncio

from toolrest.errors import Rejected
from toolrest.events import ApprovalDeferred
from toolrest.gate.bus import Bus
from toolrest.gate.approval.pending import PendingApproval, PendingError, Surroundings
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.private_files import reason
from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.records import dataclass

_LOOK_EVERY = 0.2


@dataclass(slots=True)
class Deferring:
    """Asks through files: whoever answers is another process, now or later."""

    store: PendingStore
    around: Surroundings
    bus: Bus
    wait: float = 0.0
    expire: float = 86_400.0

    async def ask(self, request: ApprovalRequest) -> Review:
        """The answer, if there is one in time, used up by this very call; else Rejected."""
        try:
            pending = await asyncio.to_thread(self.store.add, request, self.around, self.expire)
            review = await self._answer(pending, request)
            if review is not None:
                await asyncio.to_thread(self.store.take, pending)
                return review
        except PendingError as error:
            raise Rejected(f"not run: {error}", kind="approval_denied") from None
        except OSError as error:
            words = f"not run: the approvals folder cannot be used: {reason(error)}"
            raise Rejected(words, kind="approval_denied") from None
        raise Rejected(_waits(pending, request), kind="approval_denied")

    async def _answer(self, pending: PendingApproval, request: ApprovalRequest) -> Review | None:
        review = self.store.answer_to(pending)
        if review is not None:
            return review
        self.bus.emit(
            ApprovalDeferred(
                call_id=request.call_id,
                approval_id=pending.id,
                tool=request.tool,
                reason=request.reason,
                expires=pending.expires,
                turn_id=request.turn_id,
            )
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + self.wait
        while review is None and loop.time() < until:
            await asyncio.sleep(min(_LOOK_EVERY, max(until - loop.time(), 0)))
            review = self.store.answer_to(pending)
        return review


def _waits(pending: PendingApproval, request: ApprovalRequest) -> str:
    return (
        f"not run yet: {request.tool} needs approval ({request.reason}), and the question waits as "
        f"{pending.id}. Whoever runs Toolrest can answer it: `toolrest approvals approve "
        f"{pending.id}`, or `deny`. After a yes the same call, made again, runs once."
    )
