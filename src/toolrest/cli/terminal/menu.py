"""A question at a terminal with rows to choose from, by arrows or by typing; Esc goes back.

Where the terminal cannot move its cursor the rows are printed, and a line is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from toolrest.cli.terminal.terminal import Terminal
from toolrest.timeline.text import cut_to, shown, text_width

BACK = "\x1b"
"""What `ask` returns for Esc."""
_UP, _DOWN = ("\x1b[A", "\x1bOA"), ("\x1b[B", "\x1bOB")
_END = b"\x04"
_MOST, _LEAST = 24, 4
"""Rows that are drawn, and so few that all of them are choices."""
_PRINTED = 15
"""Rows that a terminal without a cursor gets of those that are no numbers."""


class Menu(Struct):
    """Rows, what each stands for when it is typed, the headings before some, the marked one.

    One that `filters` shows those that hold what is typed.
    """

    rows: Sequence[str]
    values: Sequence[str]
    at: int = 0
    heads: Mapping[int, str] = field(default_factory=dict)
    filters: bool = False

    def matching(self, typed: str) -> list[int]:
        """The numbers of the rows that are shown."""
        every = list(range(len(self.rows)))
        if not (self.filters and typed):
            return every
        return [n for n in every if typed.lower() in self.values[n].lower()]

    def marked(self, typed: str) -> int | None:
        """The number of the marked row."""
        found = self.matching(typed)
        return self.at if self.at in found else next(iter(found), None)

    def move(self, typed: str, step: int) -> None:
        """Mark another row."""
        found, marked = self.matching(typed), self.marked(typed)
        if marked is not None:
            at = found.index(marked) + step
            self.at = found[min(max(at, 0), len(found) - 1)]

    def answer(self, typed: str) -> str:
        """What Enter takes: what is typed, else the marked row."""
        marked = self.marked(typed)
        if marked is None or (typed and (not self.filters or typed in self.values)):
            return typed
        return self.values[marked]

    def lines(self, typed: str, room: int) -> list[tuple[str, str]]:
        """The rows around the marked one with the headings among them, as styles and texts."""
        marked = self.marked(typed)
        lines, place = list[tuple[str, str]](), 0
        for number in self.matching(typed):
            if number in self.heads:
                lines.append(("dim", f"  {self.heads[number]}"))
            if number == marked:
                place = len(lines)
            lines.append(("bold", "› ") if number == marked else ("", "  "))
            lines[-1] = lines[-1][0], lines[-1][1] + shown(self.rows[number])
        start = max(0, min(place - room // 2, len(lines) - room))
        found = lines[start : start + room]
        more = ("dim", "    …")
        if len(found) > _LEAST:
            found[:1] = [more] if start else found[:1]
            found[-1:] = [more] if start + room < len(lines) else found[-1:]
        return found

    def printed(self) -> list[str]:
        """All rows, for a terminal without a cursor; of many the first."""
        lines = []
        for number, row in enumerate(self.rows[:_PRINTED] if self.filters else self.rows):
            lines += [f"  {self.heads[number]}"] if number in self.heads else []
            lines.append(f"  {shown(row)}")
        more = len(self.rows) - _PRINTED
        return [*lines, f"  and {more} more"] if self.filters and more > 0 else lines


async def ask(
    terminal: Terminal, label: str, *, menu: Menu | None = None, secret: bool = False
) -> str | None:
    """What the person types or chooses; BACK for Esc, None at the end of input."""
    if os.environ.get("TERM", "dumb") == "dumb" or not terminal.has_cursor:
        return await _in_lines(terminal, label, menu, secret)
    terminal.note_dropped()
    return await _Asking(terminal, label, menu, secret).run()


async def _in_lines(terminal: Terminal, label: str, menu: Menu | None, secret: bool) -> str | None:
    for line in menu.printed() if menu else ():
        terminal.say(line)
    typed = await terminal.line(_prompt(label, menu, ""), secret=secret)
    if typed is None or typed.startswith(BACK):
        return None if typed is None else BACK
    return menu.answer(typed.strip()) if menu else typed.strip()


def _prompt(label: str, menu: Menu | None, typed: str) -> str:
    marked = menu.marked(typed) if menu else None
    return f"{label}: " if menu is None or marked is None else f"{label} [{menu.values[marked]}]: "


class _Asking:
    """One question on a terminal that has a cursor."""

    def __init__(self, terminal: Terminal, label: str, menu: Menu | None, secret: bool) -> None:
        self._terminal, self._label, self._menu, self._secret = terminal, label, menu, secret
        self._typed = ""
        self._drawn = 0
        """Rows above the prompt."""

    async def run(self) -> str | None:
        answer: str | None = None
        with self._terminal.raw():
            self._draw()
            try:
                while answer is None:
                    data = await self._terminal.read()
                    if not data or (data == _END and not self._typed):
                        break
                    answer = self._take(data.decode("utf-8", "replace"))
                    self._draw()
            finally:
                self._close(answer)
        return answer

    def _take(self, data: str) -> str | None:
        """Take keys that came together; an answer, or None for more."""
        if data == BACK:
            return BACK
        if data in _UP or data in _DOWN:
            if self._menu is not None:
                self._menu.move(self._typed, 1 if data in _DOWN else -1)
            return None
        if data.startswith(BACK):
            return None  # another key
        for char in data:
            if char in "\r\n":
                typed = self._typed.strip()
                return self._menu.answer(typed) if self._menu else typed
            if char in "\x7f\b":
                self._typed = self._typed[:-1]
            elif char == "\x15":
                self._typed = ""
            elif char.isprintable():
                self._typed += char
        return None

    def _draw(self) -> None:
        out = self._terminal.out
        width, height = self._terminal.size
        room = max(min(height - 7, _MOST), 1)
        lines = self._menu.lines(self._typed, room) if self._menu else []
        prompt = _prompt(self._label, self._menu, self._typed)
        shown_ = "" if self._secret else self._typed
        room = width - text_width(prompt) - 1
        if self._menu is None and text_width(shown_) > room:
            shown_ = "…" + shown_[-max(room - 1, 1) :]
        body = "".join(f"{_styled(style, cut_to(line, width - 1))}\r\n" for style, line in lines)
        out.write(f"{self._up()}{body}{prompt}{shown_}")
        out.flush()
        self._drawn = len(lines)

    def _up(self) -> str:
        """To the first row, with nothing below."""
        return f"\r\x1b[{self._drawn}A\x1b[J" if self._drawn else "\r\x1b[K"

    def _close(self, answer: str | None) -> None:
        """Leave the question with its answer, without the rows; nothing of it for Esc."""
        if self._menu is not None and answer is not None:
            prompt, text = _prompt(self._label, self._menu, self._typed), self._typed
            if not text and (marked := self._menu.marked(text)) is not None:
                text = shown(self._menu.rows[marked]).strip()
            self._terminal.out.write(f"{self._up()}{prompt}{text}")
        if answer == BACK:
            self._terminal.out.write("\r\x1b[K")
            self._terminal.out.flush()
        else:
            self._terminal.say()


def _styled(style: str, line: str) -> str:
    if os.environ.get("NO_COLOR") or not style:
        return line
    return f"\x1b[{'1;36' if style == 'bold' else '2'}m{line}\x1b[0m"
