"""The attempt to run an approved call: time limit, retry outside the sandbox, hashes of files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from toolrest.errors import Rejected, RespondToModel, SandboxDenied, Timeout
from toolrest.events import FileChange
from toolrest.gate.output.result import checked, to_output
from toolrest.gate.threads import Abandoned
from toolrest.items import ToolOutput
from toolrest.private_files import hash_file

if TYPE_CHECKING:
    from toolrest.gate.call.walk import Walk
    from toolrest.gate.context import Context
    from toolrest.gate.tool.call import ToolCall
    from toolrest.gate.tool.tool import Tool


LEFT_BEHIND = "the work did not stop within 2 s of being cancelled and was left behind"


async def run_decided(walk: Walk, call: ToolCall) -> ToolOutput:
    """Run a call; a mutating one first waits for the turn's `before_mutation`."""
    walk.ran = call
    output = await _run(walk, call)
    watch = walk.session.watch.made
    if watch is not None:
        output.notes += watch.take_notes()
    return output


async def _run(walk: Walk, call: ToolCall) -> ToolOutput:
    if not call.mutating:
        return await attempt(walk, call)
    await walk.turn.before_mutation(call.effects, f"{walk.name} {walk.arguments}")
    if walk.session.audit is not None:
        walk.session.audit.sync_soon()
    run = attempt_hashed if call.effects.writes else attempt
    try:
        with walk.turn.mutating(call):
            return await run(walk, call)
    except SandboxDenied as denied:
        from toolrest.gate.call.ask import may_leave

        try:
            if call.ctx.outside or not await may_leave(walk, call, denied):
                return _denied(denied)
        except Rejected as rejected:
            return _denied(denied, rejected)
        call.ctx.outside = True
        with walk.turn.mutating(call):
            return await run(walk, call)


async def attempt(walk: Walk, call: ToolCall) -> ToolOutput:
    """Run the tool within its time limit."""
    tool = call.tool
    seconds = walk.session.settings.tool_timeout_sec if tool.timeout is None else tool.timeout
    deadline = walk.session.deadlines.start(walk.task, seconds, walk.leave_behind)
    walk.deadline = deadline
    try:
        value = await call.run()
        if type(value) is not str and isinstance(value, AsyncIterator):
            return await _collect(walk, value, call)
        return to_output(value, tool.name)
    except asyncio.CancelledError:
        if not deadline.take():
            raise
        return timed_out(tool, seconds)
    except Abandoned:
        walk.turn.leave_behind()
        if not deadline.take():
            raise
        return timed_out(tool, seconds, LEFT_BEHIND)
    finally:
        deadline.stop()
        walk.deadline = None
        call.ctx.end_output()


async def _collect(walk: Walk, pieces: AsyncIterator[Any], call: ToolCall) -> ToolOutput:
    """The output of a streaming tool: each piece is shown as it comes; memory stays bounded."""
    tool, ctx = call.tool, call.ctx
    collector = walk.session.limiter.collector(walk.call_id, tool.name, tool.max_chars)
    final: ToolOutput | None = None
    with collector:
        try:
            async for piece in pieces:
                if isinstance(piece, ToolOutput):
                    final = checked(piece, tool.name)
                    continue
                text = piece if isinstance(piece, str) else to_output(piece, tool.name).text
                ctx.show(collector.write(text))
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()
    collected = collector.finish()
    if final is not None:
        return final
    return ToolOutput(collected.text, metadata={"collected": collected.summary()})


def timed_out(tool: Tool, seconds: float, note: str | None = None) -> ToolOutput:
    """The output of a call that timed out."""
    output = ToolOutput.error(f"{tool.name} timed out after {seconds:g} s", Timeout.kind)
    if note is not None:
        output.notes.append(note)
    return output


def _denied(error: SandboxDenied, rejected: Rejected | None = None) -> ToolOutput:
    """The output of a blocked call; with the denial, if somebody was asked about a retry."""
    output = error.output
    if not isinstance(output, ToolOutput):
        output = ToolOutput.error(error.message, error.kind)
    if rejected is not None and not rejected.setting:
        output.failure = rejected.failure
        output.notes.append(f"not run outside the sandbox: {rejected.message}")
    return output


def refuse_moved(paths: Iterable[str], ctx: Context) -> None:
    """Raise RespondToModel when a judged path now leads through a link to another file."""
    for path in paths:
        if ctx.files.canonical(path) != path:
            raise RespondToModel(
                f"{path} was not written: a folder or a link on the way was replaced meanwhile, "
                "so the path leads to another file. Look again, then repeat the change."
            )


_QUICK_HASH = 8 << 20


async def attempt_hashed(walk: Walk, call: ToolCall) -> ToolOutput:
    """Run the tool, with a hash of each written file before and after."""
    paths = call.effects.writes
    files_read = walk.session.files_read
    # Again: the approval may have taken a long time.
    await files_read.refuse_stale(paths, call.ctx)
    refuse_moved(paths, call.ctx)
    before = await call.ctx.in_thread(_hash_all, paths)
    try:
        with _allowing(walk, paths):
            output = await attempt(walk, call)
    except BaseException:
        # No thread and no large files here: a cancelled call must end now.
        walk.files = _changes(before, _hash_all(paths, _QUICK_HASH))
        raise
    after = await call.ctx.in_thread(_hash_all, paths)
    walk.files = _changes(before, after)
    if output.success is not False:
        files_read.note_written(after)
    return output


def _allowing(walk: Walk, paths: tuple[str, ...]) -> AbstractContextManager[None]:
    """What this call was judged to write is no change to put back."""
    watch = walk.session.watch.made
    return nullcontext() if watch is None else watch.allowing(paths)


def _changes(before: dict[str, str | None], after: dict[str, str | None]) -> list[FileChange]:
    return [FileChange(path, before[path], after[path]) for path in before]


def _hash_all(paths: tuple[str, ...], most: int | None = None) -> dict[str, str | None]:
    return {path: hash_file(path, most) for path in paths}
