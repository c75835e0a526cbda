"""`test_sync_tool`: calls that wait for each other, to show which run at the same time."""

from __future__ import annotations

import asyncio

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import Tool
from toolrest.items import Group
from toolrest.policy.effects import Effects

DEFAULT_TIMEOUT_MS = 1000


class Barrier(Parameters):
    """A barrier at which calls wait for each other."""

    id: str = param(description="Calls with the same id meet.")
    participants: int = param(ge=0, description="How many calls must have come.")
    timeout_ms: int = param(
        default=DEFAULT_TIMEOUT_MS, ge=0, description="How long to wait for them."
    )


class SyncTool(Tool):
    """A tool that sleeps, meets calls of any session on this event loop, sleeps, returns `ok`."""

    name = "test_sync_tool"
    description = "Wait, meet other calls of this tool, and wait again. For tests."
    group: Group = "user"
    typical = Effects.none()
    polling = True

    class Args(Parameters):
        """Parameters."""

        sleep_before_ms: int = param(default=0, ge=0, description="Wait before the barrier.")
        sleep_after_ms: int = param(default=0, ge=0, description="Wait after the barrier.")
        barrier: Barrier | None = param(default=None, description="Where to meet.")

    async def run(self, args: Args, ctx: Context) -> str:
        """Wait for the other calls; an error when they do not come."""
        await asyncio.sleep(args.sleep_before_ms / 1000)
        if args.barrier is not None:
            await _meet(args.barrier)
        await asyncio.sleep(args.sleep_after_ms / 1000)
        return "ok"


def test_sync_tool() -> Tool:
    """A tool whose calls wait for each other: `Toolrest(tools=[test_sync_tool()])`."""
    return SyncTool()


# pytest would collect a function called test_*.
test_sync_tool.__test__ = False  # type: ignore[attr-defined]


class _Meeting:
    """The calls that wait at one barrier, on one event loop."""

    def __init__(self, participants: int) -> None:
        self.participants = participants
        self.here = 0
        self.complete = asyncio.Event()


_meetings: dict[tuple[int, str], _Meeting] = {}


async def _meet(barrier: Barrier) -> None:
    if barrier.participants < 1:
        raise _wrong("participants", "barrier participants must be greater than zero")
    if barrier.timeout_ms < 1:
        raise _wrong("timeout_ms", "barrier timeout must be greater than zero")
    key = (id(asyncio.get_running_loop()), barrier.id)
    meeting = _meetings.setdefault(key, _Meeting(barrier.participants))
    if meeting.participants != barrier.participants:
        count = meeting.participants
        message = f"barrier {barrier.id} already registered with {count} participants"
        raise _wrong("participants", message)
    meeting.here += 1
    try:
        if meeting.here == meeting.participants:
            meeting.complete.set()
        async with asyncio.timeout(barrier.timeout_ms / 1000):
            await meeting.complete.wait()
    except TimeoutError:
        raise RespondToModel("test_sync_tool barrier wait timed out") from None
    finally:
        meeting.here -= 1
        if (meeting.here == 0 or meeting.complete.is_set()) and _meetings.get(key) is meeting:
            del _meetings[key]


def _wrong(name: str, message: str) -> RespondToModel:
    return RespondToModel(message, kind="input_invalid", fields=(f"barrier.{name}",))
