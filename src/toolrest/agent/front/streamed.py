"""`Agent.stream`: one run as a context manager, whose end ends the session too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from toolrest.agent.conversation.conversation import Conversation, Prompt
    from toolrest.agent.conversation.turn_events import TurnEvents

Out = TypeVar("Out")
_WRITE = 'write: async with agent.stream("…") as events: async for event in events: …'


class Streamed(AbstractAsyncContextManager["TurnEvents[Out]"], Generic[Out]):
    """The events of one run, in `async with`: its session has to be closed somewhere."""

    def __init__(self, open_session: Callable[[], Conversation[Out]], prompt: Prompt) -> None:
        self._open_session = open_session
        self._prompt = prompt
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> TurnEvents[Out]:
        async with AsyncExitStack() as stack:
            conversation = await stack.enter_async_context(self._open_session())
            events = await stack.enter_async_context(conversation.stream(self._prompt))
            self._stack = stack.pop_all()
        return events

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    def __aiter__(self) -> NoReturn:
        raise TypeError(_WRITE)

    def __await__(self) -> NoReturn:
        raise TypeError(_WRITE)
