"""What each key of the chat does."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from toolrest.chat.questions import Posed, Questions
from toolrest.timeline.approval import offered

if TYPE_CHECKING:
    from toolrest.chat.app import ChatApp
    from toolrest.chat.picker import Picker
    from toolrest.chat.screen import ChatScreen


_TWICE = 1.5
"""Seconds in which a second Esc belongs to the first."""
_LEAVES = " Ctrl-C again, Ctrl-D or /quit leaves"


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
        return self._screen.is_inserting and not self.is_empty and not self._writes_answer()

    def leave(self) -> None:
        """Leave the chat."""
        self._chat.leave()

    def takes_keys(self) -> bool:
        """Whether keys may be for an approval: one waits, and nothing is being written."""
        asked = self._questions.approval
        return asked is not None and asked.writes is None and not self._screen.buffer.text

    def key(self, data: str) -> None:
        """A key while an approval waits: an answer to it, or text."""
        questions = self._questions
        held = questions.take_back()
        if held:
            questions.key_pressed()
            self._screen.buffer.insert_text(held + _text(data))
        elif data == "e" and questions.is_armed:
            self._show_approval()
        elif not questions.key(data):
            self._screen.buffer.insert_text(_text(data))

    def _show_approval(self) -> None:
        asked = self._questions.approval
        if asked is not None:
            asked.see_all()
            self._questions.key_pressed()
            choices = [f"  [{key}] {sentence}" for key, sentence in offered(asked.request)]
            self._chat.page("all of the request", "\n".join([*asked.lines, *choices]))

    def paste(self, data: str) -> None:
        """A paste: text, whatever it says."""
        self._questions.take_back()
        self._questions.key_pressed()
        self._screen.buffer.insert_text(self._screen.pastes.fold(data))

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
        if held := questions.take_back():
            buffer.insert_text(held)
            return
        questions.key_pressed()
        state = buffer.complete_state
        if state is not None and buffer.text.startswith("/") and state.completions:
            buffer.apply_completion(state.current_completion or state.completions[0])
        elif state is not None and state.current_completion is not None:
            buffer.apply_completion(state.current_completion)
            return
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if self._writes_answer():
            text = buffer.text
            buffer.reset()
            questions.written(text)
        elif questions.first is None or buffer.text.strip():
            self.submit(queued=False)

    def _writes_answer(self) -> bool:
        """Whether what is written is for a question, which may be secret, and not a message."""
        first = self._questions.first
        return isinstance(first, Posed) or (first is not None and first.writes is not None)

    def submit(self, *, queued: bool) -> None:
        """Send what was written."""
        buffer, pastes = self._screen.buffer, self._screen.pastes
        text = pastes.unfold(buffer.text).strip()
        if not text:
            return
        buffer.text = text
        buffer.reset(append_to_history=True)
        pastes.clear()
        self._chat.send(text, queued=queued)

    def tab(self) -> None:
        """Tab: complete, or queue what was written for after this turn."""
        buffer = self._screen.buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
        elif self._writes_answer():
            return
        elif self._chat.busy:
            self.submit(queued=True)
        else:
            buffer.start_completion(select_first=True)

    def escape(self) -> None:
        """Esc: leave a list, a menu, a written answer, or the turn; twice goes back."""
        self._questions.take_back()
        live, now = self._screen.live, monotonic()
        if live.picker is not None:
            live.picker = None
        elif self._screen.buffer.complete_state is not None:
            self._screen.buffer.cancel_completion()
        elif self._writes_answer():
            self._screen.buffer.reset()
            self._questions.dismiss()
        elif self._chat.busy:
            self._chat.spawn(self._chat.conversation.interrupt())
        elif self.is_empty and self._questions.first is None:
            if now - self._escaped < _TWICE:
                self.back()
                return
            self._escaped = now
            live.hint = " Esc again goes back to an earlier message"
        self._screen.app.invalidate()

    def back(self) -> None:
        """Pick an earlier message to go back to."""
        self._screen.live.hint, self._escaped = "", float("-inf")
        self._chat.send("/back", queued=False)

    def control_c(self) -> None:
        """Ctrl-C: clear the composer, else interrupt the turn, else say how to leave."""
        self._questions.take_back()
        live = self._screen.live
        if live.picker is not None:
            live.picker = None
        elif self._screen.buffer.text:
            self._screen.buffer.reset()
        elif self._chat.busy:
            self._chat.spawn(self._chat.conversation.interrupt())
        elif live.hint == _LEAVES:
            self._chat.leave()
        else:
            live.hint = _LEAVES
        self._screen.app.invalidate()

    def edit(self) -> None:
        """Write on in $EDITOR, with pastes in full."""
        if self._writes_answer():
            return
        buffer = self._screen.buffer
        buffer.text = self._screen.pastes.unfold(buffer.text)
        self._screen.pastes.clear()
        buffer.open_in_editor().add_done_callback(lambda _: self._questions.key_pressed())

    def show_output(self) -> None:
        """The folded paste, what runs, or the last call, whole in the pager."""
        pasted = self._screen.pastes.shown(self._screen.buffer.text)
        calls = [*self._screen.calls[-1:], *self._screen.live.running[-1:]]
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


def _text(data: str) -> str:
    return data if data.isprintable() else ""
