"""The conversation behind the chat: the session, its turns, what is queued for it.

It knows no terminal: what changes is reported to a `View`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import unquote

from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.conversation.prompt import prompt_items
from toolrest.agent.conversation.result import TurnResult
from toolrest.agent.history.history import message
from toolrest.chat.status import change_line, goes_on
from toolrest.chat.work_here import MESSAGE, STILL, WorkHere
from toolrest.control.controls import ControlError
from toolrest.control.server import ControlServer, open_control
from toolrest.errors import ToolrestError
from toolrest.events import Event
from toolrest.items import JSONObject
from toolrest.timeline import session_text
from toolrest.timeline.cells import Cell, NoticeCell, UserCell
from toolrest.timeline.fold import Timeline
from toolrest.wire.items.pairing import is_models

Open: TypeAlias = Callable[["str | None", Mapping[str, Any]], Conversation]
"""Opens a session: a new one, or the one of this rollout; with these settings changed."""
Check: TypeAlias = Callable[[Mapping[str, Any]], object]
"""Loads the settings with these changed; ToolrestError says what is wrong with them."""
_KINDS = r"\.(?:png|jpe?g|gif|webp)"
_IMAGE = re.compile(
    rf"(?:^|(?<=\s))(?:@?((?:[^\s\\'\"]|\\ )+{_KINDS})|'([^'\n]+{_KINDS})'|\"([^\"\n]+{_KINDS})\")"
    r"(?=\s|$)",
    re.IGNORECASE,
)
"""A path to a picture, as one writes it, or as terminals paste a file that is dropped on them."""


class View(Protocol):
    """What shows the conversation."""

    def changed(self, cell: Cell) -> None:
        """A cell is new or has changed."""

    def turn_began(self) -> None:
        """A turn is under way."""

    def turn_ended(self, result: TurnResult | None) -> None:
        """The turn is over; None when it was a queued command."""

    def opened(self, said: str, *, is_same: bool) -> None:
        """A session is open: `said` is the line about it; it may be the same, opened anew."""


class ChatSession:
    """One session after the other, with one turn at a time."""

    def __init__(
        self,
        open_: Open,
        view: View,
        *,
        check: Check | None = None,
        command: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`command` does a slash command that was queued; without it, that is a message."""
        self._open = open_
        self._check = check
        self._do = command
        self._view = view
        self._conversation: Conversation | None = None
        self.timeline = Timeline()
        self.changed_settings: dict[str, Any] = {}
        """Settings that were changed in the chat, by their dotted names."""
        self.queue: list[str] = []
        self.sent: list[str] = []
        """Messages to the turn under way that the model has not read yet."""
        self._ran: list[JSONObject] = []
        """What the person ran, for the model to read with the next message."""
        self._shown: set[str] = set()
        """Messages about commands that the person ran, who has seen them already."""
        self._unread: tuple[str | None, list[JSONObject]] | None = None
        """What the turn under way was begun with, until the session has recorded it."""
        self._turn: asyncio.Task[None] | None = None
        self._commanding: asyncio.Task[None] | None = None
        """A slash command that was queued; what is queued behind it waits for its end."""
        self._unsubscribe: Callable[[], None] | None = None
        self.work_here = WorkHere(lambda text: self.notice(text, "warning"))
        """The way out of a read-only session."""
        self._reopening: asyncio.Task[None] | None = None
        self._control: ControlServer | None = None

    @property
    def conversation(self) -> Conversation:
        """The session; there is one from `start` on."""
        if self._conversation is None:
            raise RuntimeError("no session is open")
        return self._conversation

    @property
    def busy(self) -> bool:
        """Whether a turn or a command is under way."""
        return self._turn is not None and not self._turn.done()

    @property
    def is_controlled(self) -> bool:
        """Whether the session has a control socket."""
        return self._control is not None

    def start(self, rollout: str | None = None) -> None:
        """Open the first session."""
        self._use(self._open(rollout, self.changed_settings))

    async def switch(self, rollout: str | None, *, is_copy: bool = False) -> None:
        """End this session and open another; the old one stays if that one cannot be opened.

        What is queued goes on in a copy of this session; in any other it is shown, and dropped.
        """
        await self.interrupt()
        before = self.conversation.id[:8]
        opened = self._open(rollout, self.changed_settings)
        await self._end_session()
        self._queue_sent()
        unsent = [] if is_copy else [*self.queue]
        if not is_copy:
            self.queue.clear()
            self._ran.clear()
        said = goes_on(opened) if rollout else f"New session {opened.id[:8]}"
        if is_copy:
            said = f"Copy of session {before}; /resume {before} goes back to that"
        self._use(opened, said)
        for text in unsent:
            self.notice(f"not sent: {text}", "warning")

    def _queue_sent(self) -> None:
        """Queue what the model has not read: the session that it was sent to is closed."""
        self.queue[:0] = self.sent
        self.sent.clear()

    async def change(self, **settings: Any) -> None:
        """Go on with the same session and other settings; with the old ones if that fails."""
        path = self.conversation.journal.path
        before = dict(self.changed_settings)
        if self._check is not None:
            self._check({**before, **settings})  # before anything is ended
        await self.interrupt()
        left = self._in_background()
        await self._end_session()
        self._queue_sent()
        self.changed_settings.update(settings)
        try:
            opened = self._open(path, self.changed_settings)
        except ToolrestError:
            self.changed_settings = before
            self._use(self._open(path, before), "Settings stay as they were", is_same=True)
            raise
        self._use(opened, (change_line(settings) or _trusted_line(opened)) + left, is_same=True)

    def _in_background(self) -> str:
        """What is said of commands in the background, which end with the session's process."""
        runner = self.conversation.rest.session.runner.made
        rows = runner.sessions.list() if runner is not None else ()
        count = sum(row.exit_code is None for row in rows)
        return f"\n{count} background command{'s' * (count > 1)} ended" if count else ""

    async def _go_on_here(self, *, with_turn: bool) -> None:
        """Go on with this session, opened anew in a folder that is trusted now."""
        message = MESSAGE
        try:
            await self.change()
        except ToolrestError as error:
            self.notice(f"the session stays read-only: {error}", "error")
            self.work_here.opened(self.conversation)
            message = STILL
        if with_turn:
            self.say(message)

    async def _end_session(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._control is not None:
            self._control.close()  # a session that goes on with other settings has another one
        await self.conversation.aclose()

    def _use(self, conversation: Conversation, said: str = "", *, is_same: bool = False) -> None:
        self._conversation = conversation
        self.timeline = Timeline()
        self._unsubscribe = conversation.rest.subscribe(self._event)
        self._control = open_control(conversation, self)
        self.work_here.opened(conversation)
        self._view.opened(said, is_same=is_same)

    async def close(self) -> None:
        """End what runs, and the session."""
        await self.interrupt()
        if self._conversation is not None:
            await self._conversation.aclose()

    def say(self, text: str) -> None:
        """Send a message: it begins a turn, or goes to the one that is under way."""
        if self.busy and self._conversation is not None and self._conversation.running:
            if (items := self._checked_items(text)) is not None:
                self._conversation.say(items)
                self.sent.append(text)
        elif self.busy:
            self.queue.append(text)
        elif (items := self._checked_items(text)) is not None:
            self._run(text, items)
        else:
            self._next()

    def send(self, text: str, *, queued: bool) -> None:
        """A message from the browser: text alone, no command and no picture by its path."""
        (self.queue_up if queued else self.say)(ServersText(text))

    async def undo(self, turn: int) -> list[str]:
        """Take back this turn if it is the last one, and show what was put back."""
        lines = await session_text.undo(self.conversation, turn)
        self.notice("undo from the browser:\n" + "\n".join(lines))
        return lines

    def queued(self) -> list[str]:
        """Return what waits for the end of the turn, in order."""
        return [str(text) for text in self.queue]

    def unqueue(self, at: int, text: str) -> None:
        """Remove a queued message, from the browser."""
        if not 0 <= at < len(self.queue) or str(self.queue[at]) != text:
            raise ControlError("this message is not queued any more")
        del self.queue[at]

    def use_model(self, name: str) -> None:
        """Go on with another model, from the browser: the session is opened anew for that."""
        self._reopening = asyncio.ensure_future(self._with_model(name))

    async def _with_model(self, name: str) -> None:
        try:
            await self.change(model=name)
        except ToolrestError as error:
            self.notice(f"the model stays as it is: {error}", "error")

    def queue_up(self, text: str) -> None:
        """Keep a message for after this turn."""
        if self.busy:
            self.queue.append(text)
        else:
            self.say(text)

    @property
    def has_queued(self) -> bool:
        """Whether the person has queued something; what a server made stays in the queue."""
        return any(not isinstance(text, ServersText) for text in self.queue)

    def take_back(self) -> str | None:
        """The last message or command that the person has queued, out of the queue."""
        for at in reversed(range(len(self.queue))):
            if not isinstance(self.queue[at], ServersText):
                return self.queue.pop(at)
        return None

    def take_all_back(self) -> str | None:
        """All that the person has queued, as one message; None where a command is among it."""
        own = [text for text in self.queue if not isinstance(text, ServersText)]
        if not own or any(text.startswith("/") for text in own):
            return None
        self.queue[:] = [text for text in self.queue if isinstance(text, ServersText)]
        return "\n\n".join(own)

    def compact(self, note: str) -> None:
        """Replace the conversation by a summary."""
        if self.busy:
            self.notice("a turn is under way; Esc interrupts it", "warning")
        elif not any(is_models(item) for item in self.conversation.history):
            self.notice("there is nothing to summarise yet")
        else:
            self._begin(self._turn_of(self.conversation.compact(note)))

    def ran(self, text: str) -> None:
        """Keep what the person ran, as the model is told of it with the next message."""
        self._shown.add(text)
        self._ran.append(message("user", text))

    async def interrupt(self) -> None:
        """End the turn; what is queued stays queued."""
        turn = self._turn
        if turn is None or turn.done():
            return
        await asyncio.sleep(0)  # a turn that was begun just now has its first step before its end
        if self._conversation is not None and self._conversation.running:
            await self._conversation.interrupt()
        else:
            turn.cancel()
        with suppress(asyncio.CancelledError):
            await turn

    def notice(self, text: str, level: Literal["note", "warning", "error"] = "note") -> None:
        """Show a message of Toolrest."""
        self._view.changed(NoticeCell(level=level, text=text))

    def was_shown(self, text: str) -> bool:
        """Whether a message is about a command that the person ran in this chat."""
        return text in self._shown

    # Inside

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._view.turn_began()
        self._turn = asyncio.ensure_future(work)

    def _run(self, text: str | None, items: Sequence[JSONObject] = ()) -> None:
        """One turn; without a text, for the messages that came too late for the one before."""
        ran, self._ran = self._ran, []
        self._unread = text, ran
        self._begin(self._turn_of(self.conversation.run([*ran, *items])))

    async def _turn_of(self, work: Coroutine[None, None, TurnResult]) -> None:
        result: TurnResult | None = None
        try:
            result = await work
        finally:
            self._turn = None
            self._put_back()
            self._view.turn_ended(result)
        if self.work_here.is_accepted:
            with_turn = result.status == "completed"
            self._reopening = asyncio.ensure_future(self._go_on_here(with_turn=with_turn))
        elif result.status == "completed" and self.conversation.has_pending:
            self._run(None)
        elif result.status == "completed":
            self.sent.clear()
            self._next()

    def _put_back(self) -> None:
        """Keep what a turn was begun with, if it ended before the session had recorded it.

        Servers that are required, hooks and a summary of a full conversation come before that.
        """
        if self._unread is None:
            return
        (text, ran), self._unread = self._unread, None
        self._ran[:0] = ran
        if text is not None:
            self.queue.insert(0, text)
            self.notice("the model has not got your message; it is queued", "warning")

    def _next(self) -> None:
        """Go on with what is queued."""
        if not self.queue:
            return
        text = self.queue.pop(0)
        own = not isinstance(text, ServersText)
        if own and text.startswith("/") and self._do is not None:
            self._commanding = asyncio.ensure_future(self._queued_command(self._do(text)))
        else:
            self.say(text)

    async def _queued_command(self, done: Awaitable[None]) -> None:
        await done
        if not self.busy:
            self._next()

    def _checked_items(self, text: str) -> Sequence[JSONObject] | None:
        """The message for the model; None, and a notice with the text, if it cannot be sent."""
        try:
            return self._items(text)
        except ToolrestError as error:  # a picture, for one
            self.notice(f"{error}; not sent: {text}", "error")
            return None

    def _items(self, text: str) -> Sequence[JSONObject]:
        if isinstance(text, ServersText):
            return prompt_items(str(text))
        folder = self.conversation.rest.cwd
        images = [os.path.join(folder, path) for path in _mentioned(text)]
        return prompt_items(text, [path for path in images if os.path.isfile(path)])

    def _event(self, event: Event) -> None:
        cell = self.timeline.feed(event)
        if isinstance(cell, UserCell):
            self._unread = None
            if cell.text in self.sent:
                self.sent.remove(cell.text)
        if cell is not None and not (isinstance(cell, UserCell) and self.was_shown(cell.text)):
            self._view.changed(cell)


class ServersText(str):
    """A message of a server or the browser: no picture that it names is sent, no command is run."""

    __slots__ = ()


def _trusted_line(conversation: Conversation) -> str:
    settings = conversation.rest.settings
    mode = {"sandbox_mode": settings.sandbox_mode, "approval_policy": settings.approval_policy}
    return f"This folder is trusted now · {change_line(dict(mode))}"


def _mentioned(text: str) -> list[str]:
    """Paths to pictures: bare ones, quoted ones, and `file://` addresses."""
    found = ("".join(match).replace("\\ ", " ") for match in _IMAGE.findall(text))
    paths = (unquote(path[7:]) if path.startswith("file://") else path for path in found)
    return list(dict.fromkeys(os.path.expanduser(path) for path in paths))
