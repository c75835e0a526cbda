"""The chat: keys and commands on one side, the conversation on the other, the screen between."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import DynamicKeyBindings, KeyBindingsBase

from toolrest.chat.actions import KeyActions
from toolrest.chat.commands.names import known_commands
from toolrest.chat.composer.completion import ChatCompleter
from toolrest.chat.composer.files import FileNames
from toolrest.chat.keys import bindings, question_bindings
from toolrest.chat.question_view import SIGNS
from toolrest.chat.screen import ChatScreen
from toolrest.chat.status import goes_on, status_line
from toolrest.config.schema.chat import ChatKeys
from toolrest.errors import ToolrestError
from toolrest.sandbox.weak import WEAK
from toolrest.timeline.cells import CallCell, Cell, NoticeCell
from toolrest.timeline.draw import safe_lines
from toolrest.timeline.text import BAR, rows
from toolrest.timeline.wrap import plain_text

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.chat.commands.commands import Commands
    from toolrest.chat.questions import Asked, Questions
    from toolrest.chat.session import ChatSession, Check, Open
    from toolrest.config import Config


class ChatError(ToolrestError):
    """An error in the chat itself; the session that it showed can be resumed."""


class Quit(Exception):
    """Raised by `prepare` where the person answered that they do not want to begin."""


_PATIENCE = 10.0
"""Seconds that a list of files may take."""
_TICK = 0.125
_LONG = 10.0
"""Seconds of a turn after which the person may be elsewhere, and is called at its end."""
_RESUMED_CELLS = 20


class ChatApp:
    """One chat, from the first line to the last.

    `prepare` is called once the screen is there: it loads the agent, which takes longer than to
    draw, and returns what opens sessions, or None when there are questions to be asked first.
    """

    session: ChatSession
    commands: Commands
    report: Callable[[Config, str | None], list[str]] | None = None
    """Writes a report on a session; its lines say where it is and what is in it."""
    environment: Mapping[str, str] = os.environ
    """The variables of commands of the person's own."""
    check: Check | None = None
    """Loads the settings with some changed; ToolrestError says what is wrong with them."""

    def __init__(
        self,
        prepare: Callable[[Questions], Awaitable[tuple[Open, str | None] | None]],
        *,
        home: str,
        workspace: str,
        prompt: str | None = None,
    ) -> None:
        self.home, self.workspace = home, workspace
        self.notes: list[str] = []
        """What is said below the first line, once."""
        self._prepare = prepare
        completer = ChatCompleter(self._known_commands, FileNames(workspace, self._git_names))
        self.actions = KeyActions(self)
        self._use_keys(ChatKeys())
        self.screen = ChatScreen(home, completer, DynamicKeyBindings(self._bindings))
        self.screen.live.workspace = workspace
        self.screen.status = self._status
        self.questions.see_all = self.actions.show_question
        self.questions.workspace = workspace
        self.screen.app.key_processor.before_key_press += lambda _: self.questions.key_arrives()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._over: asyncio.Task[None] | None = None
        """What has the terminal for a while: the pager, an editor."""
        self._leaving = False
        self._open = False
        self._prompt = prompt
        self._early = [prompt] if prompt else []
        self._code: int | None = 0

    def _known_commands(self) -> dict[str, str]:
        known = known_commands(self.home)
        return known | self.commands.prompts.known() if self._open else known

    def _git_names(self) -> list[str] | None:
        """The workspace's files as git lists them, for the thread that completes."""
        if not self._open or self.screen.app.loop is None:
            return None
        work = self.commands.git_names()
        try:
            return asyncio.run_coroutine_threadsafe(work, self.screen.app.loop).result(_PATIENCE)
        except (TimeoutError, CancelledError):
            return None

    def _use_keys(self, chosen: ChatKeys) -> None:
        self._keys = bindings(self.actions, chosen)
        self._question_keys: KeyBindingsBase | None = None
        self._chosen_keys = chosen

    def _bindings(self) -> KeyBindingsBase:
        """The keys in force: a question has its own, made when there is one."""
        if not self.questions.is_choosing:
            return self._keys
        if self._question_keys is None:
            self._question_keys = question_bindings(self.actions, self._chosen_keys)
        return self._question_keys

    @property
    def questions(self) -> Questions:
        """The approver of the session."""
        return self.screen.questions

    async def run(self) -> int | None:
        """Chat until the person leaves; the exit code, or None for questions to be asked first."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled, number)
        try:
            loop.set_exception_handler(self._failed)
            # What is logged goes to files; without a handler it would go to the screen.
            logging.getLogger("toolrest").addHandler(logging.NullHandler())
            await self.screen.app.run_async(
                pre_run=lambda: self.spawn(self._start()), set_exception_handler=False
            )
        except EOFError:  # the terminal is gone
            self._code = 129
        except Exception as error:
            logging.getLogger("toolrest").exception("the chat failed")
            raise ChatError(
                f"the chat failed: {type(error).__name__}: {error}{self._way_back()}"
            ) from error
        finally:
            if self._open:
                await self.session.close()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)
        return self._code

    def has_text(self) -> bool:
        """Whether something was written, or sent, before there was a session."""
        keys = "".join(press.data for press in get_typeahead(self.screen.app.input))
        sent = self._early[1 if self._prompt else 0 :]
        return any(
            text.strip() and text[0] != "\x1b" for text in (*sent, keys, self.screen.buffer.text)
        )

    def _signalled(self, number: int) -> None:
        self._code = 128 + number
        self.leave()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that nothing caught: one of a key or of the drawing ends the chat."""
        error = context.get("exception")
        logging.getLogger("toolrest").error("chat: %s", context.get("message"), exc_info=error)
        if "handle" in context and error is not None and not self.screen.app.is_done:
            self.screen.app.exit(exception=error)

    def _way_back(self) -> str:
        if not self._open:
            return ""
        return f"; the session goes on with: toolrest resume {self.session.conversation.id}"

    async def _start(self) -> None:
        """Open the session once the screen is there."""
        try:
            try:
                ready = await self._prepare(self.questions)
            except Quit:
                self.leave()
                return
            if ready is None:
                self._code = None
                self.leave()
                return
            # These load the agent, and the screen is drawn before.
            from toolrest.chat.commands.commands import Commands
            from toolrest.chat.session import ChatSession

            self.session = ChatSession(
                ready[0], self, check=self.check, command=self._queued_command
            )
            self.commands = Commands(self)
            self.questions.work_here = self.session.work_here
            self.screen.live.queue = self.session.queue
            self.screen.live.sent = self.session.sent
            self.session.start(ready[1])
            self._open = True
        except ToolrestError as error:
            self.screen.say(f"✗ {error}", "red")
            self._code = 2
            self.leave()
            return
        early, self._early = self._early, []
        for text in early:
            self._send(text, queued=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; an error of it is shown, not lost."""
        self._spawned(work)

    def _spawned(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ToolrestError as error:
            self.screen.say(f"✗ {error}", "red")
        except Exception as error:
            self.screen.say(
                f"✗ an error in Toolrest itself: {type(error).__name__}: {error}", "red"
            )

    # The view of the conversation

    def changed(self, cell: Cell) -> None:
        """A cell is new or has changed."""
        live = self.screen.live
        if isinstance(cell, CallCell):
            live.doing = ""
        elif isinstance(cell, NoticeCell) and cell.level == "weak":
            if cell.text == WEAK:  # the line at the bottom says so
                self.screen.app.invalidate()
                return
        elif isinstance(cell, NoticeCell) and cell.is_repeat:
            live.doing = cell.text
            self.screen.app.invalidate()
            return
        else:
            live.doing = ""
        self.screen.changed(cell)

    def turn_began(self) -> None:
        """A turn is under way: the spinner turns."""
        self.screen.began()
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while self.screen.live.began is not None:
            self.screen.app.invalidate()
            await asyncio.sleep(_TICK)

    def turn_ended(self, result: TurnResult | None) -> None:
        """The turn is over."""
        began = self.screen.live.began
        self.screen.ended()
        self.screen.live.hint = ""
        long = began is not None and monotonic() - began >= _LONG
        if result is not None and long and not self._leaving:
            self.screen.attention()

    def opened(self, said: str, *, is_same: bool) -> None:
        """A session is open: say so, and print its last messages where it is resumed."""
        # Loaded by now.
        from toolrest.timeline.stored import stored_cells

        conversation = self.session.conversation
        settings = conversation.rest.settings
        conversation.rest.session.columns.bind(self.screen.output_columns)
        self._use_keys(settings.chat.keys)
        self.commands.opened()
        self.screen.configure(self.commands.chat_settings())
        self.screen.live.plan = None
        self.screen.live.agents.clear()
        self.screen.above.calls.clear()
        if said:
            self.screen.say(said)
        else:
            self.screen.start(conversation.model.name)
        while self.notes:
            self.screen.say(self.notes.pop(0), "yellow")
        cells = [] if is_same else stored_cells(conversation.history)
        if cells and not said:
            self.screen.say(goes_on(conversation))
        for cell in cells[-_RESUMED_CELLS:]:
            cell.done = True
            self.screen.changed(cell)
        self.screen.live.hint = ""
        conversation.warm_up()

    def _status(self, width: int) -> str:
        """The line at the bottom."""
        if not self._open:
            return ""
        running = self.commands.background()
        return status_line(self.session.conversation, self.session.timeline, running, width)

    # What the person does

    @property
    def conversation(self) -> Conversation | None:
        """The session, once it is open."""
        return self.session.conversation if self._open else None

    @property
    def busy(self) -> bool:
        """Whether a turn or a command is under way."""
        return self._open and self.session.busy

    def send(self, text: str, *, queued: bool) -> None:
        """A message or a command of the person; it waits until the session is open."""
        if self._open:
            self._send(text, queued=queued)
        elif text in ("/exit", "/quit"):
            self.leave()
        else:
            self._early.append(text)

    async def _queued_command(self, text: str) -> None:
        """Do a slash command that was queued, to its end; a message if it is none."""
        before = set(self._tasks)
        if self.commands.run(text):
            await asyncio.gather(*(self._tasks - before))
        else:
            self.session.say(text)

    def _send(self, text: str, *, queued: bool) -> None:
        if queued and self.busy:
            self.session.queue_up(text)
            return
        if text.startswith("/") and self.commands.run(text):
            return
        if queued:
            self.session.queue_up(text)
        else:
            self.session.say(text)

    def leave(self) -> None:
        """Leave the chat; the last line says how to come back."""
        self._leaving = True
        unsent = (*self.session.sent, *self.session.queue) if self._open else self._early
        for text in unsent:
            self.screen.say(f"not sent: {text}", "yellow")
        if self._open and self.session.timeline.cells:
            id_ = self.session.conversation.id
            self.screen.say(f"this session goes on with: toolrest resume {id_[:8]}")
        self.screen.flush()
        if self._over is not None:
            self._over.cancel()  # the chat would wait for its end
        with suppress(Exception):  # it may be over already
            self.screen.app.exit()

    def own_command(self, line: str) -> None:
        """Run a command that the person typed, outside the sandbox, with the terminal."""
        # Rarely needed.
        from toolrest.chat.own_commands import run_own

        self.over(run_own(self, line))

    def page(self, title: str, text: str, *, is_diff: bool = False) -> None:
        """Show a text in the pager."""
        # Rarely needed.
        from toolrest.chat.pager import page
        from toolrest.timeline.draw_diff import unified_lines

        if not is_diff:
            self.over(page(safe_lines(title)[0], safe_lines(text)))
            return
        lines = unified_lines(text)
        colour = self.screen.colours.of
        drawn: list[StyleAndTextTuples] = [[(colour(s), part) for s, part in row] for row in lines]
        self.over(page(safe_lines(title)[0], [plain_text(row) for row in lines], drawn=drawn))

    def page_request(self, asked: Asked) -> None:
        """Show all of an approval request in the pager; then it can be approved."""
        # Rarely needed.
        from toolrest.chat.pager import page

        width = self.screen.size[1] - 1  # the last column is a scroll bar
        lines = [row for line in asked.form.details for row in rows(line, width)]
        colours = self.screen.colours.live
        kinds = {f"{BAR}{sign}": colours[style] for sign, style in SIGNS.items()}
        drawn: list[StyleAndTextTuples] | None = None
        if asked.form.diff:
            drawn = [[(kinds.get(line[: len(BAR) + 1], ""), line)] for line in lines]
        self.over(page("all of it", lines, seen=asked.see_details, drawn=drawn))

    def over(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that has the terminal meanwhile; it ends when the chat does."""

        async def guarded() -> None:
            try:
                await work
            finally:
                self.questions.key_pressed()

        self._over = self._spawned(guarded())
