"""Events of calls to sub-agents: a begin and an end for each kind of call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from msgspec import Struct, field

from toolrest.events import Event

if TYPE_CHECKING:
    from toolrest.gate.context import Context


class CollabBegin(Event, kw_only=True):
    """A call to one or more sub-agents begins; `prompt` is the message to them."""

    call_id: str
    tool: str
    sender_thread_id: str
    receiver_thread_ids: tuple[str, ...] = ()
    prompt: str | None = None


class CollabEnd(CollabBegin, kw_only=True):
    """A call to sub-agents ended: the status of each agent, and whether the call worked."""

    statuses: Mapping[str, Any]
    success: bool


class CollabAgentSpawnBegin(CollabBegin, kw_only=True):
    """A sub-agent is about to be started."""

    type: ClassVar[str] = "collab_agent_spawn_begin"


class CollabAgentSpawnEnd(CollabEnd, kw_only=True):
    """A sub-agent was started, or could not be."""

    type: ClassVar[str] = "collab_agent_spawn_end"


class CollabAgentInteractionBegin(CollabBegin, kw_only=True):
    """A message to a sub-agent is about to be sent."""

    type: ClassVar[str] = "collab_agent_interaction_begin"


class CollabAgentInteractionEnd(CollabEnd, kw_only=True):
    """A message was sent to a sub-agent."""

    type: ClassVar[str] = "collab_agent_interaction_end"


class CollabWaitingBegin(CollabBegin, kw_only=True):
    """A call waits for sub-agents."""

    type: ClassVar[str] = "collab_waiting_begin"


class CollabWaitingEnd(CollabEnd, kw_only=True):
    """The wait for sub-agents ended: one of them is done, or the time is over."""

    type: ClassVar[str] = "collab_waiting_end"


class CollabCloseBegin(CollabBegin, kw_only=True):
    """A sub-agent is about to be closed."""

    type: ClassVar[str] = "collab_close_begin"


class CollabCloseEnd(CollabEnd, kw_only=True):
    """A sub-agent was closed."""

    type: ClassVar[str] = "collab_close_end"


class CollabResumeBegin(CollabBegin, kw_only=True):
    """A closed sub-agent is about to be opened again."""

    type: ClassVar[str] = "collab_resume_begin"


class CollabResumeEnd(CollabEnd, kw_only=True):
    """A sub-agent is open again."""

    type: ClassVar[str] = "collab_resume_end"


Pair: TypeAlias = "tuple[type[CollabBegin], type[CollabEnd]]"


class CollabReport(Struct):
    """The fields of the end event, filled in by the tool while it runs."""

    receivers: tuple[str, ...] = ()
    statuses: dict[str, Any] = field(default_factory=dict)


@contextmanager
def reporting(
    ctx: Context, events: Pair, receivers: tuple[str, ...] = (), prompt: str | None = None
) -> Iterator[CollabReport]:
    """Emit the begin event now and the end event when the work is over, however it ends."""
    begin, end = events
    common: dict[str, Any] = {
        "call_id": ctx.call_id,
        "tool": ctx.tool,
        "sender_thread_id": ctx.session_id,
        "prompt": prompt,
    }
    ctx.emit(begin(receiver_thread_ids=receivers, **common))
    known = CollabReport(receivers)
    success = False
    try:
        yield known
        success = True
    finally:
        ctx.emit(
            end(
                receiver_thread_ids=known.receivers,
                statuses=known.statuses,
                success=success,
                **common,
            )
        )
