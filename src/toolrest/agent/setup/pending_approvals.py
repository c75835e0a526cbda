"""Pending approvals of a session: their store, and acting on an answer at most once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolrest.gate.approval.pending import ApprovalScope, PendingApproval, PendingError
from toolrest.gate.approval.pending_store import FileApprovals, PendingStore
from toolrest.items import ToolOutput
from toolrest.policy.modes import network_of

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import Approvals
    from toolrest.gate.approval.request import ReviewDecision
    from toolrest.gate.bus import Bus
    from toolrest.policy.paths.policy import PathPolicy


def deferring(config: Config, files: PathPolicy, session_id: str, bus: Bus) -> FileApprovals:
    """The store of this session's pending approvals."""
    settings = config.value
    network, hosts = network_of(settings), settings.tool_security.allowed_network_domains
    around = ApprovalScope(
        session_id,
        files.workspace,
        settings.approval_policy,
        settings.sandbox_mode,
        ",".join(hosts or ()) or network,
        files.writable_roots,
    )
    store = PendingStore(config.home)
    return FileApprovals(
        store, around, bus, settings.approvals.wait_sec, settings.approvals.expire_sec
    )


def waiting(approvals: Approvals) -> list[PendingApproval]:
    """The pending approvals of this session that are not used yet."""
    desk = approvals.deferring
    return desk.store.waiting(session_id=desk.around.session_id)


async def resume(
    rest: Toolrest,
    approvals: Approvals,
    pending: PendingApproval,
    answer: ReviewDecision | None,
    note: str,
) -> ToolOutput:
    """Answer a pending approval (or take the answer it has) and run its call, at most once.

    PendingError when it is not genuine, expired, used up, unanswered or of another workspace.
    """
    desk = approvals.deferring
    if (pending.workspace, pending.sandbox_mode) != (
        desk.around.workspace,
        desk.around.sandbox_mode,
    ):
        raise PendingError(
            f"{pending.id} was asked in {pending.workspace} with sandbox_mode = "
            f"{pending.sandbox_mode}; resume it there"
        )
    if answer is not None:
        await asyncio.to_thread(desk.store.answer, pending, answer, note)
    review = await asyncio.to_thread(desk.store.answer_to, pending)
    if review is None:
        raise PendingError(f"{pending.id} has no answer yet")
    await asyncio.to_thread(desk.store.take, pending)
    if not review.approves:
        why = f": {review.note}" if review.note else ""
        return ToolOutput.error(f"rejected by user{why}", "approval_denied")
    approvals.admit(pending.call_id, pending.pin, review)
    async with rest.turn().of_host() as turn:
        return await turn.start(pending.item).output()
