"""Running a call that may run: within its time, once more outside where that is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from toolrest.errors import SandboxDenied, Timeout
from toolrest.gate.output.result import checked, to_output
from toolrest.gate.threads import Abandoned
from toolrest.items import ToolOutput

if TYPE_CHECKING:
    from toolrest.gate.tool.tool import Tool
    from toolrest.gate.call._merge_understood import Ready
    from toolrest.gate.call.walk import Walk

LEFT_BEHIND = "the work did not stop within 2 s of being cancelled and was left behind"


async def run_decided(walk: Walk, call: Ready) -> ToolOutput:
    """Run a call; what may change something waits for the turn to be ready for that."""
    walk.ran = call
    if not call.effects.mutating:
        return await attempt(walk, call)
    await walk.turn.before_mutation(call.effects, f"{walk.name} {walk.arguments}")
    if walk.gate.sync_soon is not None:
        walk.gate.sync_soon()
    try:
        return await _once(walk, call)
    except SandboxDenied as denied:
        from toolrest.gate.call.ask import may_leave

        if call.ctx.outside or not await may_leave(walk, call):
            return _denied(denied)
        call.ctx.outside = True
        return await _once(walk, call)


async def _once(walk: Walk, call: Ready) -> ToolOutput:
    if not call.effects.writes:
        return await attempt(walk, call)
    from toolrest.gate.call._merge_watched import watched

    return await watched(walk, call)


async def attempt(walk: Walk, call: Ready) -> ToolOutput:
    """Run the tool within its time limit."""
    own = call.tool.timeout
    seconds = own if own is not None else walk.gate.default_timeout
    if seconds is None:
        return await _perform(walk, call)
    deadline = walk.deadline = walk.gate.deadlines.start(walk.task, seconds, walk.leave_behind)
    try:
        return await _perform(walk, call)
    except asyncio.CancelledError:
        if not deadline.take():
            raise
        return timed_out(call.tool, seconds)
    except Abandoned:
        if not deadline.take():
            raise
        return timed_out(call.tool, seconds, LEFT_BEHIND)
    finally:
        deadline.stop()


async def _perform(walk: Walk, call: Ready) -> ToolOutput:
    try:
        value = await call.tool.run(call.args, call.ctx)
        if type(value) is not str and isinstance(value, AsyncIterator):
            return await _collect(walk, value, call)
        return to_output(value, call.tool.name)
    finally:
        call.ctx.end_output()


async def _collect(walk: Walk, pieces: AsyncIterator[Any], call: Ready) -> ToolOutput:
    """A streaming tool: each piece is shown as it comes; memory stays bounded."""
    tool, ctx = call.tool, call.ctx
    collector = walk.gate.limiter.collector(walk.call_id, tool.name, tool.max_chars)
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
    """What a call is answered with when its time is over."""
    output = ToolOutput.error(f"{tool.name} timed out after {seconds:g} s", Timeout.kind)
    if note is not None:
        output.notes.append(note)
    return output


def _denied(error: SandboxDenied) -> ToolOutput:
    if isinstance(error.output, ToolOutput):
        return error.output
    return ToolOutput.error(error.message, error.kind)
