"""The approval request of a call before it is made, for front ends that ask beforehand."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from toolrest.answer import Answer
from toolrest.errors import ToolrestError
from toolrest.gate.call.ask import request_for
from toolrest.gate.call.schedule import Place
from toolrest.gate.call.turn import Turn
from toolrest.gate.call.understand import look
from toolrest.gate.call.walk import Walk
from toolrest.gate.decision.judge import judge
from toolrest.gate.threads import Abandoned

if TYPE_CHECKING:
    from toolrest.gate.approval.request import ApprovalRequest
    from toolrest.gate.session import Session
    from toolrest.items import CallItem

_log = logging.getLogger("toolrest")


async def would_ask(session: Session, item: CallItem, *, of_host: bool) -> ApprovalRequest | None:
    """The approval request that a call would make as things are now.

    None when it would be run unasked, or refused. Nothing is run, asked or announced, and hooks
    are not consulted.
    """
    turn = Turn(session)
    walk = Walk(
        session, item, turn.of_host() if of_host else turn, item.call_id or "",
        Place(session.scheduler),
    )  # fmt: skip
    try:
        call = await look(walk)
        await call.prepare()
        decision = judge(walk, call)
        return request_for(walk, call, decision) if decision.verdict == Answer.ASK else None
    except (ToolrestError, OSError, RecursionError, Abandoned):
        return None  # it would be refused, and making the call says why
    except Exception:  # the tool's own code decides here, too; making the call fails alike
        _log.exception("whether %s needs approval is not known: an error in a tool", item.name)
        return None
    finally:
        if walk.ctx is not None:
            walk.ctx.close()
