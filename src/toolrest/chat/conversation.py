"""The conversation behind the chat: the session, its turns, what is queued for it.

It knows no terminal: what changes is reported to a `View`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import unquote

from toolrest.agent.conversation.prompt import prompt_items
from toolrest.agent.conversation.result import TurnResult
from toolrest.agent.conversation.session import AgentSession
from toolrest.agent.history.history import message
from toolrest.errors import ToolrestError
from toolrest.events import Event
from toolrest.items import JSONObject
from toolrest.timeline.cells import Cell, NoticeCell, UserCell
from toolrest.timeline.fold import Timeline
from toolrest.wire.items.pairing import is_models

Open: TypeAlias = Callable[["str | None", Mapping[str, Any]], AgentSession]
"""Opens a session: a new one, or the one of this rollout; with these settings changed."""
_KINDS = r"\.(?:png|jpe?g|gif|webp)"
_IMAGE = re.compile(
    rf"(?:^|(?<=\s))(?:@?((?:[^\s\\'\"]|\\ )+{_KINDS})|'([^'\n]+{_KINDS})'|\"([^\"\n]+{_KINDS})\")"
    r"(?=\s|$)",
    re.IGNORECASE,
)
"""A path to a picture, as one writes it, or as terminals paste a file that is dropped on them."""
SHELL = "exec_command"
RAN = "I ran this command myself:\n$ "
"""The start of a message about a command that the person ran."""


class View(Protocol):
    """What shows the conversation."""

    def changed(self, cell: Cell) -> None:
        """A cell is new or has changed."""

    def turn_began(self) -> None:
        """A turn is under way."""

    def turn_ended(self, result: TurnResult | None) -> None:
        """The turn is over; None when it was a command of the person."""

    def opened(self) -> None:
        """There is a (new) session."""


class Conversation:
    """One session after the other, with one turn at a time."""

    def __init__(self, open_: Open, view: View) -> None:
        self._open = open_
        self._view = view
        self._session: AgentSession | None = None
        self.timeline = Timeline()
        self.changed_settings: dict[str, Any] = {}
        """Settings that were changed in the chat, by their dotted names."""
        self.queue: list[str] = []
        self.sent: list[str] = []
        """Messages to the turn under way that the model has not read yet."""
        self._ran: list[JSONObject] = []
        """What the person ran, for the model to read with the next message."""
        self._turn: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def session(self) -> AgentSession:
        """The session; there is one from `start` on."""
        if self._session is None:
            raise RuntimeError("no session is open")
        return self._session

    @property
    def busy(self) -> bool:
        """Whether a turn or a command is under way."""
        return self._turn is not None and not self._turn.done()

    def start(self, rollout: str | None = None) -> None:
        """Open the first session."""
        self._use(self._open(rollout, self.changed_settings))

    async def switch(self, rollout: str | None) -> None:
        """End this session and open another; the old one stays if that one cannot be opened."""
        await self.interrupt()
        opened = self._open(rollout, self.changed_settings)
        await self._end_session()
        self.queue.clear()
        self.sent.clear()
        self._ran.clear()
        self._use(opened)

    async def change(self, **settings: Any) -> None:
        """Go on with the same session and other settings; with the old ones if that fails."""
        path = self.session.journal.path
        before = dict(self.changed_settings)
        await self.interrupt()
        await self._end_session()
        self.queue[:0] = self.sent  # the session that they were sent to is closed
        self.sent.clear()
        self.changed_settings.update(settings)
        try:
            opened = self._open(path, self.changed_settings)
        except ToolrestError:
            self.changed_settings = before
            self._use(self._open(path, before))
            raise
        self._use(opened)

    async def _end_session(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self.session.aclose()

    def _use(self, session: AgentSession) -> None:
        self._session = session
        self.timeline = Timeline()
        self._unsubscribe = session.rest.subscribe(self._event)
        self._view.opened()

    async def close(self) -> None:
        """End what runs, and the session."""
        await self.interrupt()
        if self._session is not None:
            await self._session.aclose()

    def say(self, text: str) -> None:
        """Send a message: it begins a turn, or goes to the one that is under way."""
        if self.busy and self._session is not None and self._session.running:
            try:
                self._session.say(self._items(text))
            except ToolrestError as error:  # a picture that cannot be sent
                self.notice(str(error), "error")
            else:
                self.sent.append(text)
            return
        if self.busy:
            self.queue.append(text)
            return
        self._begin(self._run(text))

    def queue_up(self, text: str) -> None:
        """Keep a message for after this turn."""
        if self.busy:
            self.queue.append(text)
        else:
            self.say(text)

    def compact(self, note: str) -> None:
        """Replace the conversation by a summary."""
        if self.busy:
            self.notice("a turn is under way; Esc interrupts it", "warning")
        elif not any(is_models(item) for item in self.session.history.items):
            self.notice("there is nothing to summarise yet")
        else:
            self._begin(self._turn_of(self.session.compact(note)))

    def run_command(self, line: str) -> None:
        """Run a command of the person, through the gate like any other."""
        if self.busy:
            self.queue.append(f"!{line}")
        else:
            self._begin(self._command(line))

    async def interrupt(self) -> None:
        """End the turn; what is queued stays queued."""
        turn = self._turn
        if turn is None or turn.done():
            return
        if self._session is not None and self._session.running:
            await self._session.interrupt()
        else:
            turn.cancel()
        with suppress(asyncio.CancelledError):
            await turn

    def notice(self, text: str, level: Literal["note", "warning", "error"] = "note") -> None:
        """Show a message of Toolrest."""
        self._view.changed(NoticeCell(level=level, text=text))

    # Inside

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._view.turn_began()
        self._turn = asyncio.ensure_future(work)

    async def _run(self, text: str | None) -> None:
        """One turn; without a text, for the messages that came too late for the one before."""
        try:
            items = [*self._ran, *(self._items(text) if text is not None else ())]
        except ToolrestError as error:  # a picture that cannot be sent
            self._turn = None
            self._view.turn_ended(None)
            self.notice(str(error), "error")
            return
        self._ran = []
        await self._turn_of(self.session.run(items))

    async def _turn_of(self, work: Coroutine[None, None, TurnResult]) -> None:
        result: TurnResult | None = None
        try:
            result = await work
        finally:
            self._turn = None
            self._view.turn_ended(result)
        if result.status == "completed" and self.session.has_pending:
            self._begin(self._run(None))
        elif result.status == "completed":
            self.sent.clear()
            self._next()

    async def _command(self, line: str) -> None:
        output = "it was interrupted"
        try:
            output = (await self.session.rest.call(SHELL, {"cmd": line})).text
        finally:
            self._turn = None
            self._ran.append(message("user", f"{RAN}{line}\n{output}"))
            self._view.turn_ended(None)
        self._next()

    def _next(self) -> None:
        """Go on with what is queued."""
        if not self.queue:
            return
        text = self.queue.pop(0)
        if text.startswith("!") and not isinstance(text, ServersText):
            self.run_command(text[1:])
        else:
            self.say(text)

    def _items(self, text: str) -> Sequence[JSONObject]:
        if isinstance(text, ServersText):
            return prompt_items(str(text))
        folder = self.session.rest.gate.services.files.cwd
        images = [os.path.join(folder, path) for path in _mentioned(text)]
        return prompt_items(text, [path for path in images if os.path.isfile(path)])

    def _event(self, event: Event) -> None:
        cell = self.timeline.feed(event)
        if isinstance(cell, UserCell) and cell.text in self.sent:
            self.sent.remove(cell.text)
        if cell is not None:
            self._view.changed(cell)


class ServersText(str):
    """A message that a server wrote: no picture that it names is sent, no command of it is run."""

    __slots__ = ()


def _mentioned(text: str) -> list[str]:
    """Paths to pictures: bare ones, quoted ones, and `file://` addresses."""
    found = ("".join(match).replace("\\ ", " ") for match in _IMAGE.findall(text))
    paths = (unquote(path[7:]) if path.startswith("file://") else path for path in found)
    return list(dict.fromkeys(os.path.expanduser(path) for path in paths))
