"""Searches that the model's own server did: they count as calls, though nothing here ran them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from toolrest.answer import Answer
from toolrest.events import (
    ToolCallBegin,
    ToolCallDecision,
    ToolCallEnd,
    WebSearchBegin,
    WebSearchEnd,
)
from toolrest.policy.effects import Risk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolrest.gate.session import Session


def record_search(session: Session, turn_id: str, item: Mapping[str, Any], seconds: float) -> None:
    """Record a finished search of the server: its events, its audit lines, and the taint."""
    found = item.get("action")
    action: dict[str, Any] = found if isinstance(found, dict) else {"type": "search"}
    action = session.redactor.redact_json(action)
    query = _words(action)
    call_id = str(item.get("id") or f"hosted-{os.urandom(6).hex()}")
    name = str(item["type"]).removesuffix("_call")
    emit = session.bus.emit
    emit(ToolCallBegin(call_id=call_id, tool=name, arguments=query, turn_id=turn_id, icon="search"))
    emit(
        ToolCallDecision(
            call_id=call_id,
            tool=name,
            arguments=query,
            verdict=Answer.ALLOW,
            rule="hosted",
            risk=Risk.WRITE.label,
            reason="the model's server searched",
            keys=(f"connect:{name}",),
            mutating=True,
            turn_id=turn_id,
        )
    )
    emit(WebSearchBegin(call_id=call_id))
    emit(WebSearchEnd(call_id=call_id, query=query, action=action))
    failed = item.get("status") == "failed"
    emit(
        ToolCallEnd(
            call_id=call_id,
            tool=name,
            success=not failed,
            failure="execution_failed" if failed else None,
            duration=seconds,
            bytes=0,
            output="",
            turn_id=turn_id,
        )
    )
    session.taint.note_external(name)


def _words(action: Mapping[str, Any]) -> str:
    """The search words of an action, else the page that it opened or searched."""
    queries = action.get("queries")
    listed = queries if isinstance(queries, list) else ()
    values = (action.get("query"), *listed, action.get("url"))
    return next((value for value in values if isinstance(value, str) and value), "")
