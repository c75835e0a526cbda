"""The terminal: one question at a time, typed lines in, escaped text out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import termios
from collections.abc import Iterator
from typing import TextIO

from toolrest.policy.terminal_safe import display_safe
from toolrest.timeline.text import rows

_MOST_LINE = 65_536
_ENDLESS = 1 << 30


QUIET = 0.5
"""Seconds without a key before an approval can be typed: type-ahead never answers."""
DROPPED = "(What you typed before this question was dropped.)"
PASTED = "\x1b[200~"
"""What `typed` returns for a paste."""
_PASTES_MARKED, _PASTES_AS_TYPED = "\x1b[?2004h", "\x1b[?2004l"


class Terminal:
    """Asks on a terminal without holding up the event loop; cancelling a question is safe."""

    def __init__(self, fd: int = 0, out: TextIO | None = None, quiet: float = QUIET) -> None:
        self._fd = fd
        self._out = out
        self._quiet = quiet
        self._lock = asyncio.Lock()

    @property
    def lock(self) -> asyncio.Lock:
        """Held through a whole question, so that two of them never mix."""
        return self._lock

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; very many where the output is not a terminal."""
        return _size(self._out or sys.stderr)

    def say(self, text: str = "", *, bold: bool = False) -> None:
        """Print a line of our own text; external text goes through `shown` first."""
        out = self._out or sys.stderr
        bold = bold and out.isatty() and not os.environ.get("NO_COLOR")
        for row in rows(text, _size(out)[0]):
            print(f"\x1b[1m{row}\x1b[0m" if bold else row, file=out, flush=True)

    @property
    def out(self) -> TextIO:
        """Where questions are written."""
        return self._out or sys.stderr

    @property
    def has_cursor(self) -> bool:
        """Whether both ends are a terminal, so that a question can be drawn again."""
        return os.isatty(self._fd) and self.out.isatty()

    def note_dropped(self) -> None:
        """Drop what was typed before a question could be read, and say so."""
        if self._drop_typed():
            self.say(DROPPED)

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Keys come one by one and without an echo; Ctrl-C stays what it is."""
        before = termios.tcgetattr(self._fd)
        raw = termios.tcgetattr(self._fd)
        raw[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, raw)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, before)

    async def line(self, prompt: str, *, secret: bool = False, early: bool = False) -> str | None:
        """What the person types next, without the newline; None at the end of input.

        What was typed before the question could be read does not count as an answer to it, unless
        `early` does.
        """
        if not early:
            self.note_dropped()
        out = self._out or sys.stderr
        out.write(prompt)
        out.flush()
        with _echo_off(self._fd) if secret else contextlib.nullcontext():
            try:
                data = await self.read()
            except asyncio.CancelledError:
                self.say()  # what comes next begins a line of its own
                raise
        if secret or not data:
            self.say()
        if not data:
            return None
        return data.decode("utf-8", "replace").split("\n", 1)[0].rstrip("\r")

    def _drop_typed(self) -> bool:
        """Drop what was typed so far; whether that was more than Enter or a terminal's report."""
        before = termios.tcgetattr(self._fd)
        raw = termios.tcgetattr(self._fd)
        raw[3] &= ~termios.ICANON  # a line without its end can be read, too
        termios.tcsetattr(self._fd, termios.TCSANOW, raw)
        try:
            data = os.read(self._fd, _MOST_LINE) if _has_input(self._fd) else b""
        finally:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, before)
        return bool(data.strip()) and not data.startswith(b"\x1b")

    async def typed(self, prompt: str) -> str | None:
        """Read a line that was typed after this prompt, which comes once the keyboard is quiet.

        PASTED for a line that was pasted, or that came together with others.
        """
        out = self._out or sys.stderr
        marked = out.isatty()
        out.write(_PASTES_MARKED if marked else "")
        try:
            await self._until_quiet()
            line = await self.line(prompt)
        finally:
            out.write(_PASTES_AS_TYPED if marked else "")
            out.flush()
        if line and (PASTED in line or _has_input(self._fd)):
            return PASTED
        return line

    async def _until_quiet(self) -> None:
        """Drop what is typed until no key came for a while."""
        with self.raw():
            termios.tcflush(self._fd, termios.TCIFLUSH)
            while self._quiet:
                try:
                    if not await asyncio.wait_for(self.read(), self._quiet):
                        return  # the end of input
                except TimeoutError:
                    return

    async def read(self) -> bytes:
        """What arrives next; empty at the end of input."""
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()

        def ready() -> None:
            try:
                data = os.read(self._fd, _MOST_LINE)
            except OSError:
                data = b""  # the terminal is gone
            if not typed.done():
                typed.set_result(data)

        loop.add_reader(self._fd, ready)
        try:
            return await typed
        finally:
            loop.remove_reader(self._fd)


def _has_input(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def _size(out: TextIO) -> tuple[int, int]:
    try:
        found = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return _ENDLESS, _ENDLESS  # there is no edge
    return found.columns or 80, found.lines or 24


@contextlib.contextmanager
def _echo_off(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        # The beginning of a secret, of a question that was answered elsewhere, is no next line.
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)


def safe_for(out: TextIO | None, text: str) -> str:
    """External text for `out`: made safe where that is a terminal, raw elsewhere."""
    try:
        on_terminal = out is not None and out.isatty()
    except ValueError:
        return text  # closed
    return display_safe(text, keep_layout=True) if on_terminal else text


def is_terminal() -> bool:
    """Whether there is a person to ask: input and messages both on a terminal."""
    files = (sys.stdin, sys.stderr)
    try:
        return all(file is not None and file.isatty() for file in files)  # None: closed at start
    except ValueError:
        return False  # closed since
