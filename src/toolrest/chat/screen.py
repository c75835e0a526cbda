"""The screen of the chat: finished cells above, the live part and the composer below."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from time import monotonic

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    SearchBufferControl,
    Window,
)
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor, PasswordProcessor
from prompt_toolkit.search import stop_search

from toolrest.chat.above import Above
from toolrest.chat.composer.completion import ChatCompleter, menu_rows
from toolrest.chat.composer.history import PrivateHistory
from toolrest.chat.composer.pastes import Pastes
from toolrest.chat.composer.typed import TypedText
from toolrest.chat.live import LiveState
from toolrest.chat.picker import Picker
from toolrest.chat.question_view import above_lines
from toolrest.chat.questions import Asked, Posed, Questions, Waiting
from toolrest.chat.status import PLACEHOLDER, start_lines
from toolrest.chat.terminal.paste_input import PasteInput
from toolrest.chat.terminal.quiet_output import InlineApplication, notification, quiet_output
from toolrest.chat.terminal.themes import colours
from toolrest.config.schema.chat import ChatSettings
from toolrest.timeline.blocks import read_blocks
from toolrest.timeline.cells import (
    Cell,
)
from toolrest.timeline.look import MARGIN
from toolrest.timeline.plain import has_colour, styled
from toolrest.timeline.text import cut_to

_COMPOSER_ROWS = 8
_MENU_ROWS = 10
_LOW = 12
"""Rows of a screen on which no row is left empty."""
_BESIDE = 5
"""Rows of the live part that are not for a message, but for what else goes on."""
_GATHERED, _PACE = 0.012, 0.06
"""Seconds in which what the model and its tools write is gathered, and from frame to frame; what
keys do is drawn at once."""
_SENT = 0.1
"""Seconds in which a first message is drawn and sent."""
_SHARE = 8
"""After a frame that took long, so many times as long goes by until the next."""


class ChatScreen:
    """What is on the terminal. Cells come in by `changed`; keys are bound elsewhere."""

    def __init__(self, home: str, completer: ChatCompleter, bindings: KeyBindingsBase) -> None:
        self.questions = Questions(self._questions_changed)
        self.live = LiveState(self.questions)
        self.questions.is_screen_free = lambda: not self.app._running_in_terminal
        self.pastes = Pastes()
        self.typed = TypedText()
        self.keyboard = PasteInput(sys.stdin)
        self._writes: tuple[Waiting, str] | None = None
        """The question that the line is written for."""
        self._draft = Document()
        """The message that was being written before that."""
        self._placed: Asked | None = None
        """The last approval that was looked at: what is too long for it stands above."""
        self._called = False
        """Whether the person was called: not again for the next question, or a key of theirs."""
        self.status: Callable[[int], str] = lambda width: ""
        """The line at the bottom for a width; the chat sets it."""
        self.output = quiet_output(sys.stdout)
        self.colours = colours("terminal", allowed=has_colour(sys.stdout))
        self.above = Above(self.live, lambda: self.size[1], self._message_room)
        self._frame: asyncio.TimerHandle | None = None
        self._rests_until = 0.0
        self._can_read = False
        self.buffer = Buffer(
            multiline=True,
            history=PrivateHistory(home),
            completer=ThreadedCompleter(completer),
            complete_while_typing=Condition(lambda: self.questions.first is None),
            read_only=Condition(lambda: self.questions.is_choosing),
            enable_history_search=False,
            on_text_changed=lambda _: self._written(),
        )
        self.app = InlineApplication(
            Layout(self._container(), focused_element=self.buffer),
            key_bindings=bindings,
            full_screen=False,
            mouse_support=False,
            erase_when_done=True,
            input=self.keyboard,
            output=self.output,
            min_redraw_interval=0.01,
            terminal_size_polling_interval=None,
            before_render=lambda app: self._before_frame(),
            after_render=lambda app: self.questions.was_drawn(),
        )
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = 0.3
        self._height = 0
        self.app.key_processor.after_key_press += lambda _: self._after_key()

    def configure(self, settings: ChatSettings) -> None:
        """Use these settings."""
        self.colours = colours(settings.theme, allowed=has_colour(sys.stdout))
        self.app.editing_mode = EditingMode(settings.edit_mode.upper())
        self.app.invalidate()

    def _after_key(self) -> None:
        """An empty line is in vi's insert mode: its keys are text, or answer a question."""
        if not self.buffer.text:
            self.app.vi_state.input_mode = InputMode.INSERT

    @property
    def is_inserting(self) -> bool:
        """Whether vi's insert mode is on, which Esc leaves."""
        is_vi = self.app.editing_mode == EditingMode.VI
        return is_vi and self.app.vi_state.input_mode == InputMode.INSERT

    def _prefix(self) -> str:
        is_vi = self.app.editing_mode == EditingMode.VI
        return "› " if not is_vi or self.is_inserting else ": "

    # Layout

    def _container(self) -> HSplit:
        search = SearchBufferControl()
        composer = Window(
            BufferControl(
                self.buffer,
                search_buffer_control=search,
                preview_search=True,
                input_processors=[
                    ConditionalProcessor(PasswordProcessor(), Condition(self._is_secret)),
                    ConditionalProcessor(
                        AfterInput(lambda: [(self.colours.live["dim"], PLACEHOLDER)]),
                        Condition(self._invites),
                    ),
                ],
            ),
            wrap_lines=True,
            dont_extend_height=True,
            height=lambda: Dimension(min=1, max=self._composer_rows()),
            get_line_prefix=lambda number, wraps: self._prefix() if number == wraps == 0 else "  ",
        )
        return HSplit(
            [
                Window(
                    FormattedTextControl(self._live_text), dont_extend_height=True, wrap_lines=False
                ),
                composer,
                ConditionalContainer(
                    Window(
                        search,
                        height=1,
                        get_line_prefix=lambda number, wraps: "  earlier messages: ",
                    ),
                    is_searching,
                ),
                ConditionalContainer(
                    Window(FormattedTextControl(self._menu_text), dont_extend_height=True),
                    Condition(lambda: bool(self._menu())),
                ),
                ConditionalContainer(
                    Window(FormattedTextControl(self._footer_text), height=1),
                    Condition(lambda: self.size[0] > 4),
                ),
            ]
        )

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the terminal."""
        found = self.output.get_size()
        return found.rows, found.columns

    def output_columns(self) -> int:
        """The width of the lines of a command's output, which are indented."""
        return max(20, self.size[1] - 1 - MARGIN)

    def _composer_rows(self) -> int:
        return max(1, min(_COMPOSER_ROWS, self.size[0] // 3))

    def _used_below(self) -> int:
        """Rows of the composer, the menu and the footer."""
        rows, columns = self.size
        lines = self.buffer.document.lines[:_COMPOSER_ROWS]
        wide = sum(1 + len(line) // max(columns - 2, 1) for line in lines)
        return min(wide, self._composer_rows()) + len(self._menu()) + (rows > 4)

    def _live_text(self) -> StyleAndTextTuples:
        rows, columns = self.size
        has_gap = rows >= _LOW
        lines = self.live.lines(rows - self._used_below() - 1 - has_gap, columns - 1)
        if has_gap and lines:
            at = sum(any(line is row for row in self.live.rows) for line in lines)
            lines.insert(at, [])  # apart from what was said
        found: StyleAndTextTuples = []
        for number, line in enumerate(lines):
            found += [("", "\n")] if number else []
            found += [(self.colours.of(style), text) for style, text in line]
        return found

    def _menu(self) -> list[tuple[str, str]]:
        state = self.buffer.complete_state
        if state is None or self.size[0] < 10:
            return []
        return menu_rows(state, min(_MENU_ROWS, self.size[0] // 2 - 2))

    def _menu_text(self) -> StyleAndTextTuples:
        width = self.size[1] - 1
        found: StyleAndTextTuples = []
        for number, (style, text) in enumerate(self._menu()):
            found += [("", "\n")] if number else []
            marked = f"bold {self.colours.live['cyan']}" if style == "bold" else ""
            found.append((marked or self.colours.live[style], cut_to(text, width)))
        return found

    def _footer_text(self) -> StyleAndTextTuples:
        width = self.size[1]
        hint = cut_to(self.live.hint, width - 1)
        return [(self.colours.live["dim"], hint or self.status(width))]

    def _invites(self) -> bool:
        """Whether the empty line says what may be written in it."""
        empty = not self.buffer.text and self.questions.first is None and self.live.picker is None
        return empty and self.colours.any and self.size[1] > len(PLACEHOLDER) + 2

    def _is_secret(self) -> bool:
        writes = self.questions.writes
        first = writes[0] if writes is not None else None
        return isinstance(first, Posed) and first.question.is_secret

    def _before_frame(self) -> None:
        """Write what is finished above the live part; erase that when its rows get fewer or more.

        A terminal that wraps its rows anew takes what was erased behind a row for a part of it.
        """
        rows, columns = self.size
        self._place()
        height = self.app.layout.container.preferred_height(columns, rows).preferred
        if (waiting := self.above.waiting) or height != self._height:
            self.app.renderer.erase()
            lines = (styled(line, self.colours.any, self.colours.ansi) for line in waiting)
            self.output.write_raw("".join(f"{line}\r\n" for line in lines))
            waiting.clear()
            self.output.is_clean = True
        self._height = height

    def _place(self) -> None:
        """Put what is asked about above the live part, where it is too long to stand in it."""
        asked = self.questions.approval
        if asked is None or asked is self._placed:
            return
        self._placed = asked
        rows, columns = self.size
        queued = len(self.live.queue) + len(self.live.sent)
        lines = above_lines(asked, rows - self._used_below() - 2 - queued, columns - 1)
        if lines:
            self.above.place(asked.request.call_id, lines)
            asked.is_above = asked.seen_whole = True

    def _questions_changed(self) -> None:
        first, writes = self.questions.first, self.questions.writes
        if writes != self._writes:
            if self._writes is None:
                self._draft = self.buffer.document
            self.buffer.reset()  # the beginning of an answer is no message, nor is this an answer
            if writes is None:
                self.buffer.set_document(self._draft, bypass_readonly=True)
                self._draft = Document()
        self._writes = writes
        if first is not None:
            self.live.picker = None
            self.buffer.complete_state = None
            if self.app.layout.is_searching:
                stop_search()
            if not self._called:
                self.attention()
        self._called = first is not None
        self.app.invalidate()

    def _written(self) -> None:
        """Something is written: lists and hints are over."""
        self.typed.follow(self.buffer.text)
        self.live.picker, self.live.hint = None, ""

    def pick(self, picker: Picker) -> None:
        """Let the person pick from a list, unless something is asked: that has the screen."""
        if self.questions.first is not None:
            self.say("answer what is asked first", "yellow")
            return
        self.live.picker = picker
        self.app.invalidate()

    def attention(self) -> None:
        """Call the person: a bell and a notification, where the terminal has them."""
        self.output.write_raw(f"\x07{notification(os.environ)}")
        self.output.flush()

    # Above the live part

    def changed(self, cell: Cell) -> None:
        """Show a cell, or what is new of it."""
        self.above.changed(cell)
        self._update()

    def _message_room(self) -> int:
        return max(self.size[0] - self._used_below() - _BESIDE, 3)

    def _update(self) -> None:
        """Draw a frame soon, with all that is new until then."""
        if self._frame is None and self.app.loop is not None:
            delay = max(_GATHERED, self._rests_until - monotonic())
            self._frame = self.app.loop.call_later(delay, self.flush)

    def flush(self) -> None:
        """Draw what is new, in one frame."""
        self._frame = None
        began = monotonic()
        self.above.draw_message()
        if self.above.waiting and self.app._running_in_terminal:
            self._update()  # a pager has the screen
        else:
            self.app._redraw()
        now = monotonic()
        self._rests_until = began + max(_PACE, _SHARE * (now - began))

    def start(self, model: str) -> None:
        """Put the first lines of a chat above the live part."""
        self.above.start(start_lines(model, self.live.workspace, self.size[1]))
        self._update()

    def ends_part(self) -> None:
        """Set what comes next apart by a blank row."""
        self.above.ends_part()

    def clear(self) -> None:
        """Begin again at the top: what is on the screen scrolls away, and is not lost."""
        self.flush()
        self.app.renderer.erase()
        self.output.write_raw("\r\n" * self.size[0] + "\x1b[H")
        self.above.cleared()

    def say(self, text: str, style: str = "dim") -> None:
        """Put a line of our own above the live part, apart from the call before it."""
        self.above.say(text, style)
        self._update()

    def began(self) -> None:
        """A turn is under way."""
        self.live.began = monotonic()
        if not self._can_read and self.app.loop is not None:
            self._can_read = True
            self.app.loop.call_later(_SENT, self._learn_to_read)

    def _learn_to_read(self) -> None:
        """Import what reads Markdown, which is slow, while the first request is on its way."""
        if self.app.loop is not None:
            self.app.loop.run_in_executor(None, read_blocks, "`.`")

    def ended(self) -> None:
        """The turn is over."""
        self.live.began = None
        self.live.running.clear()
        self.live.reasoning = None
        self.app.invalidate()
