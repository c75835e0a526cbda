"""Stored sessions for an editor: their list, and what is shown of one that is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from acp.exceptions import RequestError
from acp.schema import ListSessionsResponse, SessionInfo

from toolrest.agent.history.rollout import lines_of
from toolrest.agent.history.stored_sessions import Summary, summaries
from toolrest.policy.terminal_safe import display_safe
from toolrest.serve.acp.updates import replayed

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation

_PAGE = 50


def page(home: str, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
    """A page of the recorded sessions, the latest first; the cursor is the last id before it."""
    folder = None if cwd is None else os.path.realpath(cwd)
    rows = (row for row in summaries(home, folder) if row.title and _folder(row))
    if cursor is not None and not any(row.stored.thread_id == cursor for row in rows):
        raise RequestError.invalid_params({"cursor": "there is no such page"})
    found = list(islice(rows, _PAGE + 1))
    more = found[_PAGE - 1].stored.thread_id if len(found) > _PAGE else None
    return ListSessionsResponse(sessions=[_info(row) for row in found[:_PAGE]], next_cursor=more)


def _folder(row: Summary) -> str:
    """The folder of a stored session; empty where none is recorded."""
    cwd = row.meta.get("cwd")
    return cwd if isinstance(cwd, str) and os.path.isabs(cwd) else ""


def _info(row: Summary) -> SessionInfo:
    return SessionInfo(
        session_id=row.stored.thread_id,
        cwd=_folder(row),
        title=display_safe(row.title),
        updated_at=datetime.fromtimestamp(row.changed, UTC).isoformat(),
    )


def shown(conversation: Conversation) -> Iterator[Any]:
    """The updates of all that was said, also of what a summary has replaced in the history."""
    path = conversation.journal.path
    lines = lines_of(path) if path is not None else ()
    items = [line[1] for line in lines if line is not None and line[0] == "response_item"]

    def icon_of(tool: str) -> Any:
        found = conversation.rest.find(tool)
        return "other" if found is None else found.icon

    return replayed(items, conversation.rest.cwd, icon_of)
