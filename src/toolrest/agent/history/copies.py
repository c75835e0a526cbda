"""Copies of sessions: which turns of other sessions belong to a conversation, too."""

from __future__ import annotations

from datetime import datetime

from toolrest.agent.history.rollout import lines_of
from toolrest.agent.history.stored_sessions import exact_session
from toolrest.errors import ConfigError


def own_turns(home: str, session_id: str) -> dict[str, float]:
    """Sessions whose turns are this one's, each with the time until which they are.

    It has its own, and those that the session it is a copy of had before the copy was made.
    """
    own = {session_id: float("inf")}
    current = session_id
    while True:
        try:
            kind, meta = next(lines_of(exact_session(home, current).path), None) or ("", {})
            copied = datetime.fromisoformat(str(meta.get("timestamp", ""))).timestamp()
        except (ConfigError, ValueError):
            return own  # a session without a journal, or with an older one
        current = str(meta.get("forked_from_id") or "")
        if kind != "session_meta" or not current or current in own:
            return own
        own[current] = copied
