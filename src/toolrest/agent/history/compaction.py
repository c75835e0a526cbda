"""Compaction of a conversation that grew too long: the user's messages, and a summary."""

from __future__ import annotations

from collections.abc import Sequence

from toolrest.agent.history.history import is_user_turn, message, message_text
from toolrest.agent.history.tokens import text_tokens
from toolrest.items import JSONObject
from toolrest.wire.items.pairing import call_id_of

USER_TOKENS = 20_000
_AROUND = 20
"""Tokens around the text of a message."""

PROMPT = """\
This conversation is about to be replaced by a summary that you write now. The model that goes on \
with the task will see only that summary and the user's messages. Write it so that it can go on \
without asking:
- what the user wants, with every constraint and preference they stated;
- what was done so far: files changed (with paths), commands that matter, and what came out;
- what was decided, and why; what was tried and did not work;
- what is left to do, in order, and the very next step;
- names, paths, numbers and error texts that will be needed again, word for word.
Be complete but brief. Do not call any tool."""

PREFIX = """\
The conversation before this point was replaced by the following summary, which was written by \
the model that worked on the task. Go on from it and do not repeat work that it says is done."""


def is_summary(item: JSONObject) -> bool:
    """Whether a message is the summary of an earlier compaction."""
    return item.get("role") == "user" and message_text(item).startswith(PREFIX[:60])


def condensed(
    opening: Sequence[JSONObject],
    items: Sequence[JSONObject],
    summary: str,
    ceiling: int | None = None,
) -> list[JSONObject]:
    """The new history: the opening, the user's latest messages, and the summary.

    The messages take at most half of what the others leave below the ceiling.
    """
    kept: list[JSONObject] = []
    room = USER_TOKENS
    if ceiling is not None:
        others = text_tokens(summary) + sum(text_tokens(message_text(item)) for item in opening)
        room = min(room, max(0, ceiling - others) // 2)
    for item in reversed(items):
        if not is_user_turn(item) or is_summary(item):
            continue
        text = message_text(item)
        size = text_tokens(text) + _AROUND
        if size > room:
            if room > _AROUND:
                kept.append(message("user", _middle_cut(text, room - _AROUND)))
            break
        kept.append(message("user", text))
        room -= size
    kept.reverse()
    text = summary.strip() or "(no summary is available)"
    return [*opening, *kept, message("user", f"{PREFIX}\n{text}")]


def without_oldest(items: Sequence[JSONObject]) -> list[JSONObject]:
    """The items without the first, and without its output if it was a call."""
    if not items:
        return []
    first, rest = items[0], list(items[1:])
    call_id = call_id_of(first)
    if not call_id:
        return rest
    return [item for item in rest if call_id_of(item) != call_id]


def _middle_cut(text: str, tokens: int) -> str:
    data = text.encode("utf-8", "replace")
    half = tokens * 2
    removed = -(-(len(data) - 2 * half) // 4)
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head}…{removed} tokens truncated…{tail}"
