"""Running a call that declares writes: into the files it was judged by, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.events import FileChange
from toolrest.gate.call.attempt import attempt
from toolrest._merge_files import hash_file
from toolrest.gate.call._merge_stale import note_written, refuse_moved, refuse_stale

if TYPE_CHECKING:
    from toolrest.gate.call._merge_understood import Ready
    from toolrest.gate.call.walk import Walk
    from toolrest.items import ToolOutput

_QUICK_HASH = 8 << 20


async def watched(walk: Walk, call: Ready) -> ToolOutput:
    """Run it, with a hash of each file before and after."""
    paths = call.effects.writes
    services = walk.gate.services
    # Again: somebody may have taken their time to say yes.
    await refuse_stale(paths, call.ctx, services)
    refuse_moved(paths, call.ctx)
    before = await call.ctx.in_thread(_hash_all, paths)
    try:
        output = await attempt(walk, call)
    except BaseException:
        # No waiting here: a cancelled call must end now. A large file is not worth it.
        walk.files = _changes(before, _hash_all(paths, _QUICK_HASH))
        raise
    after = await call.ctx.in_thread(_hash_all, paths)
    walk.files = _changes(before, after)
    if output.success is not False:
        note_written(after, services)
    return output


def _changes(before: dict[str, str | None], after: dict[str, str | None]) -> list[FileChange]:
    return [FileChange(path, before[path], after[path]) for path in before]


def _hash_all(paths: tuple[str, ...], most: int | None = None) -> dict[str, str | None]:
    return {path: hash_file(path, most) for path in paths}
