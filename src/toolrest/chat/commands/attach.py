"""Attach to a command in the background: its output as it comes, and keys for it."""

from __future__ import annotations

import asyncio
import codecs
from typing import TYPE_CHECKING

from prompt_toolkit.application import Application
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.widgets import TextArea

from toolrest.chat.pager import whole_screen
from toolrest.errors import RespondToModel
from toolrest.timeline.draw import safe_lines

if TYPE_CHECKING:
    from toolrest.process.sessions.table import SessionInfo, Sessions

_KEPT = 200_000
"""Characters of the output that are kept on the screen."""
_REDRAW = 0.05


async def attach(sessions: Sessions, row: SessionInfo, title: str) -> None:
    """Show a command's output until the person leaves or it ends; the chat is as before then."""
    async with whole_screen():
        await _Attached(sessions, row, title).run()


class _Attached:
    """The screen of an attached command. Its output is shown as text and can do nothing else."""

    def __init__(self, sessions: Sessions, row: SessionInfo, title: str) -> None:
        self._sessions, self._row = sessions, row
        self._text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._area = TextArea("", read_only=True, scrollbar=True, wrap_lines=True)
        types = ", keys go to it" if row.tty else ""
        head = f" Ctrl-] leaves, Ctrl-C interrupts{types} · {title}"
        top = Window(FormattedTextControl([("reverse", safe_lines(head)[0])]), height=1)
        self._app: Application[None] = Application(
            Layout(HSplit([top, self._area]), focused_element=self._area),
            key_bindings=self._keys(),
            full_screen=True,
            min_redraw_interval=_REDRAW,
            terminal_size_polling_interval=None,
        )
        self._drawing: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until Ctrl-]."""
        before, stop = self._sessions.watch(self._row.session_id, self._more)
        self._text = before
        self._draw()
        try:
            await self._app.run_async()
        finally:
            stop()
            if self._drawing is not None:
                self._drawing.cancel()

    def _more(self, data: bytes) -> None:
        self._text = (self._text + self._decoder.decode(data))[-_KEPT:]
        if self._drawing is None:
            loop = asyncio.get_running_loop()
            self._drawing = loop.call_later(_REDRAW, self._draw)

    def _draw(self) -> None:
        self._drawing = None
        text = "\n".join(safe_lines(self._text))
        self._area.buffer.set_document(Document(text, len(text)), bypass_readonly=True)
        self._app.invalidate()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-]", eager=True)
        def _(event: KeyPressEvent) -> None:
            event.app.exit()

        @keys.add(Keys.Any, eager=True)
        @keys.add("enter", eager=True)
        @keys.add("tab", eager=True)
        @keys.add("backspace", eager=True)
        @keys.add("c-c", eager=True)
        @keys.add("c-d", eager=True)
        @keys.add(Keys.BracketedPaste, eager=True)
        def _(event: KeyPressEvent) -> None:
            self._type(event.data)

        return keys

    def _type(self, chars: str) -> None:
        try:
            self._sessions.type(self._row.session_id, chars)
        except RespondToModel as error:  # it has ended, or has no terminal
            self._text = f"{self._text.rstrip()}\n[{error.message}; Ctrl-] leaves]\n"
            self._draw()
