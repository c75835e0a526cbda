"""How a session takes back what its turns have changed, off the event loop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from toolrest.agent.undo.checkpoints import Undone
from toolrest.agent.undo._merge_errors import UndoError
from toolrest.gate.threads import run_in_thread

if TYPE_CHECKING:
    from toolrest.agent.undo.turn_checkpoint import Saver


async def undo_turns(
    saver: Saver | None, session_id: str, turn: int | None, *, force: bool, dry_run: bool
) -> Undone:
    """Take back the newest turn, or turn N and all after it; UndoError without checkpoints."""
    if saver is None:
        raise UndoError("there are no checkpoints: checkpoints.enabled is false")

    def work() -> Undone:
        checkpoints = saver.get()
        if dry_run:
            return Undone(checkpoints.preview(turn, force=force))
        return checkpoints.undo(turn, force=force, session=session_id)

    return await run_in_thread(work, (), threading.Event())
