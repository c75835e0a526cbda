"""What each key of the chat does."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING

from prompt_toolkit.document import Document

from toolrest.chat.composer.pastes import whole_lines
from toolrest.chat.questions import Offered, Posed, Questions
from toolrest.chat.terminal.paste_input import MorePaste
from toolrest.own_code import tool_roots

if TYPE_CHECKING:
    from toolrest.chat.app import ChatApp
    from toolrest.chat.picker import Picker
    from toolrest.chat.screen import ChatScreen


_TWICE = 1.5
"""Seconds in which a second Esc belongs to the first."""
_NOT_TYPED = "  Not run: type a ! line yourself, all of it"
_LEAVES = "  Ctrl-C again, Ctrl-D or /exit leaves"
_KEPT = "  Enter sends, Esc drops"


class KeyActions:
    """The actions that keys are bound to."""

    def __init__(self, chat: ChatApp) -> None:
        self._chat = chat
        self._escaped = float("-inf")

    @property
    def _screen(self) -> ChatScreen:
        return self._chat.screen

    @property
    def _questions(self) -> Questions:
        return self._chat.screen.questions

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written."""
        return not self._screen.buffer.text

    @property
    def leaves_insert_mode(self) -> bool:
        """Whether Esc is vi's own: it leaves the insert mode of a line that is written."""
        free = not self._writes_answer() and not self.is_choosing
        return self._screen.is_inserting and not self.is_empty and free

    def leave(self) -> None:
        """Leave the chat."""
        self._chat.leave()

    @property
    def is_choosing(self) -> bool:
        """Whether a question is open: every key is for it, and none for the line."""
        return self._questions.is_choosing

    def choose(self, key: str) -> None:
        """A key for the question: `up`, `down`, `enter` or a character."""
        self._questions.press(key)

    def show_question(self) -> None:
        """All of the approval in the pager."""
        asked = self._questions.approval
        if asked is not None:
            self._questions.key_pressed()
            self._chat.page_request(asked)

    def paste(self, data: str) -> None:
        """A paste: text, whatever it says. An answer, which may be secret, has no mark in it."""
        self._questions.key_pressed()
        if self.is_choosing:
            self._questions.drop()
            return
        buffer, pastes = self._screen.buffer, self._screen.pastes
        if self._writes_answer():
            buffer.insert_text(whole_lines(data))
            return
        if isinstance(data, MorePaste):
            begun, shown = pastes.begun(buffer.document.text_before_cursor)
            buffer.delete_before_cursor(len(shown))
            data = begun + data
        buffer.insert_text(pastes.fold(data))

    def paste_picture(self) -> None:
        """Paste the picture that is on the clipboard."""
        if not self._writes_answer():
            self._chat.spawn(self._paste_picture())

    async def _paste_picture(self) -> None:
        # Rarely needed.
        from toolrest.chat.composer.clipboard import clipboard_picture, keep_picture

        if (conversation := self._chat.conversation) is None:
            return
        data = await clipboard_picture(self._tool_roots())
        path = keep_picture(self._chat.home, conversation.id, data)
        buffer = self._screen.buffer
        if self._questions.first is None:
            before = buffer.document.char_before_cursor
            mark = self._screen.pastes.fold_picture(path, len(data))
            buffer.insert_text(f"{' ' if before.strip() else ''}{mark} ")

    @property
    def is_picking(self) -> bool:
        """Whether there is a list to pick from."""
        return self._screen.live.picker is not None

    def pick(self, step: int) -> None:
        """Mark another row of the list."""
        if (picker := self._screen.live.picker) is not None:
            picker.move(step)

    def _take(self, picker: Picker) -> None:
        self._screen.live.picker = None
        picker.take(picker.at)

    def enter(self) -> None:
        """Enter: send, answer a question that is written, or take a row or a completion."""
        questions, buffer = self._questions, self._screen.buffer
        if (picker := self._screen.live.picker) is not None:
            self._take(picker)
            return
        questions.key_pressed()
        if self._writes_answer():
            text = buffer.text
            buffer.reset()
            questions.written(text)
        elif not self._completed():
            self.submit(queued=False)

    def _completed(self) -> bool:
        """Whether Enter took a completion or began a new line; then nothing is sent."""
        buffer = self._screen.buffer
        state = buffer.complete_state
        if state is not None and buffer.text.startswith("/") and state.completions:
            buffer.apply_completion(state.current_completion or state.completions[0])
        elif state is not None and state.current_completion is not None:
            buffer.apply_completion(state.current_completion)
            return True
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return True
        return False

    def _writes_answer(self) -> bool:
        """Whether what is written is for a question, which may be secret, and not a message."""
        return self._questions.writes is not None

    def submit(self, *, queued: bool) -> None:
        """Send what was written."""
        buffer, pastes = self._screen.buffer, self._screen.pastes
        text = pastes.unfold(buffer.text).strip()
        if not text:
            return
        if text.startswith("!"):
            self._own_command(text)
            return
        buffer.text = text
        buffer.reset(append_to_history=True)
        pastes.clear()
        self._chat.send(text, queued=queued)

    def _own_command(self, text: str) -> None:
        """Run a command of the person's own, if all of it was typed, and Enter pressed, by hand."""
        screen, line = self._screen, text[1:].strip()
        if not screen.typed.is_typed(text):
            screen.live.hint = _NOT_TYPED
        elif self._chat.conversation is None or screen.keyboard.together != 1:
            screen.live.hint = "  Enter once more runs it"
        elif line:
            screen.buffer.reset(append_to_history=True)
            self._chat.own_command(line)
        screen.app.invalidate()

    @property
    def has_queued(self) -> bool:
        """Whether the line is empty, and there is a queued message to take back into it."""
        free = self.is_empty and not self.is_picking and self._questions.first is None
        return free and self._chat.conversation is not None and self._chat.session.has_queued

    def take_queued(self) -> None:
        """Take the last queued message back into the line."""
        if (text := self._chat.session.take_back()) is not None:
            self._screen.buffer.document = Document(text, len(text))

    def tab(self) -> None:
        """Tab: complete, or queue what was written for after this turn."""
        buffer = self._screen.buffer
        if self._writes_answer():
            return
        if buffer.complete_state is not None and buffer.complete_state.completions:
            buffer.complete_next()
        elif self._chat.busy:
            self.submit(queued=True)
        else:
            buffer.start_completion(select_first=True)

    def escape(self) -> None:
        """Esc: leave a list, a menu, a written answer, or the turn; twice goes back."""
        if self._is_vis_own_escape():
            self._questions.drop()
            return
        live, now = self._screen.live, monotonic()
        if live.picker is not None:
            live.picker = None
        elif self._screen.buffer.complete_state is not None:
            self._screen.buffer.cancel_completion()
        elif self._writes_answer() or isinstance(self._questions.first, Posed | Offered):
            self._questions.dismiss()
        elif self._chat.busy:
            self._chat.spawn(self._stop())
        elif live.hint == _KEPT:
            self._screen.buffer.reset()
        elif self.is_empty and self._questions.first is None:
            if now - self._escaped < _TWICE:
                self.back()
                return
            self._escaped = now
            live.hint = "  Esc again goes back to an earlier message"
        self._screen.app.invalidate()

    def _is_vis_own_escape(self) -> bool:
        """Whether Esc was meant for a line in vi's mode, which a question took the keys from."""
        writing = self._screen.is_inserting and not self.is_empty
        return self.is_choosing and writing and not self._questions.is_ready

    async def _stop(self) -> None:
        """End the turn; what was queued comes into the line, if that is empty."""
        await self._chat.session.interrupt()
        free = self.is_empty and not self._writes_answer()
        if free and (text := self._chat.session.take_all_back()):
            self._screen.buffer.document = Document(text, len(text))
            self._screen.live.hint = _KEPT

    def escape_and(self, char: str) -> None:
        """Esc, and a character that came with it."""
        self.escape()
        if self.is_choosing:
            self.choose(char)
        else:
            self._screen.buffer.insert_text(char)

    def back(self) -> None:
        """Pick an earlier message to go back to."""
        self._screen.live.hint, self._escaped = "", float("-inf")
        self._chat.send("/back", queued=False)

    def control_c(self) -> None:
        """Ctrl-C: clear the composer, else interrupt the turn, else say how to leave."""
        live = self._screen.live
        if live.picker is not None:
            live.picker = None
        elif self._screen.buffer.text and not self.is_choosing:
            self._screen.buffer.reset()
        elif self._chat.busy:
            self._chat.spawn(self._stop())
        elif live.hint == _LEAVES:
            self._chat.leave()
        else:
            live.hint = _LEAVES
        self._screen.app.invalidate()

    def edit(self) -> None:
        """Write on in $EDITOR, with pastes in full."""
        if self._writes_answer():
            return
        self._chat.over(self._edit())

    async def _edit(self) -> None:
        # Rarely needed.
        from toolrest.chat.composer.editor import edited

        buffer = self._screen.buffer
        text = self._screen.pastes.unfold(buffer.text)
        written = await edited(text, self._chat.home, self._tool_roots())
        if written is not None:
            self._screen.pastes.clear()
            buffer.document = Document(written, len(written))

    def _tool_roots(self) -> list[str]:
        """The folders that tools may write: those of this session, and of earlier ones."""
        conversation = self._chat.conversation
        roots = (os.getcwd(),) if conversation is None else conversation.rest.writable_roots
        return [*roots, *tool_roots]

    def show_output(self) -> None:
        """The folded paste, what runs, or the last call, whole in the pager."""
        if self._questions.approval is not None:
            self.show_question()
            return
        pasted = self._screen.pastes.shown(self._screen.buffer.text)
        calls = [*self._screen.above.calls[-1:], *self._screen.live.running[-1:]]
        if pasted is not None:
            self._chat.page("what was pasted", pasted)
        elif calls:
            cell = calls[-1]
            output = cell.shown_output()
            lost = (
                f"[{output.dropped:,} earlier lines are not kept here]\n" if output.dropped else ""
            )
            spill = f"\n[all of it: {cell.spill}]" if cell.spill else ""
            self._chat.page(cell.command or cell.tool, lost + output.text + spill)
