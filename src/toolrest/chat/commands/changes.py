"""What a session has changed, from the checkpoints of its folder: also what it did before a resume.

A patch that failed has changed nothing, and is not among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolrest.agent.undo.checkpoints import Changed, Checkpoints
from toolrest.patch.text.diff import unified_diff

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation

_LARGEST_FILE = 1 << 20
_MOST_BYTES = 16 << 20


def session_diff(conversation: Conversation) -> str:
    """The diff of a session since its start; empty where it has changed nothing.

    A turn that still runs is counted when it ends. It reads files, so it is for a thread.
    """
    checkpoints = Checkpoints(conversation.rest.config.home, conversation.rest.workspace)
    changed = checkpoints.changed_by(conversation.id, _LARGEST_FILE, _MOST_BYTES)
    text = "\n".join(line for one in changed for line in _lines(one))
    return conversation.redactor.redact(text)


def _lines(one: Changed) -> Iterator[str]:
    records = [record for record in (one.was, one.now) if record is not None]
    if any(record.is_dir for record in records):
        return
    kind = "add" if one.was is None else "delete" if one.now is None else "update"
    yield f"{kind} {one.path}"
    if None in (one.before if one.was else b"", one.after if one.now else b""):
        yield "  its content was not kept, or is too large to show"
        return
    try:
        before, after = ((content or b"").decode() for content in (one.before, one.after))
    except UnicodeDecodeError:
        yield "  not a text file"
        return
    yield unified_diff(before, after) or "  its mode or owner changed"
