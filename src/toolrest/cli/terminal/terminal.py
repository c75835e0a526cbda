"""The person at the terminal: one question at a time, lines in, escaped text out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Iterator
from typing import TextIO
from unicodedata import east_asian_width

from toolrest.policy.terminal_safe import display_safe

_MOST_LINE = 65_536
_ENDLESS = 1 << 30


class Terminal:
    """Asks on a terminal without holding up the event loop; cancelling a question is safe."""

    def __init__(self, fd: int = 0, out: TextIO | None = None) -> None:
        self._fd = fd
        self._out = out
        self._lock = asyncio.Lock()

    @property
    def lock(self) -> asyncio.Lock:
        """Held through a whole question, so that two of them never mix."""
        return self._lock

    def say(self, text: str = "") -> None:
        """Print a line of our own text; external text goes through `shown` first."""
        out = self._out or sys.stderr
        for row in rows(text, _columns(out)):
            print(row, file=out, flush=True)

    async def line(self, prompt: str, *, secret: bool = False) -> str | None:
        """What the person types next, without the newline; None at the end of input.

        What was typed before the question could be read does not count as an answer to it.
        """
        termios.tcflush(self._fd, termios.TCIFLUSH)
        out = self._out or sys.stderr
        out.write(prompt)
        out.flush()
        with _echo_off(self._fd) if secret else contextlib.nullcontext():
            data = await self._read()
        if secret or not data:
            self.say()
        if not data:
            return None
        return data.decode("utf-8", "replace").split("\n", 1)[0].rstrip("\r")

    async def _read(self) -> bytes:
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


def _columns(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return _ENDLESS  # there is no edge


@contextlib.contextmanager
def _echo_off(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def shown(text: str) -> str:
    """One line of external text: nothing in it can act on the terminal or hide."""
    return display_safe(text)


BAR = "  | "


def block(text: str) -> list[str]:
    """Several lines of external text, each behind a bar so that none looks like ours."""
    return [BAR + line for line in display_safe(text, keep_newlines=True).split("\n")]


def rows(line: str, width: int) -> list[str]:
    """A line as rows that fit the terminal, every one behind the bar, or indented, as it is.

    Left to itself a terminal breaks a long line at its edge, and what a model wrote would go on
    in the first column, where only our own text begins.
    """
    lead = BAR if line.startswith(BAR) else " " * len(BAR)
    room = max(width - len(BAR) - 1, 16)
    rest = line.removeprefix(BAR)
    if text_width(rest) <= room:
        return [line]
    found = [""]
    used = 0
    for char in rest:
        size = text_width(char)
        if used + size > room:
            found.append("")
            used = 0
        found[-1] += char
        used += size
    return [line[: len(line) - len(rest)] + found[0], *(lead + row for row in found[1:])]


def text_width(text: str) -> int:
    """How many columns a text may take; where terminals differ, the larger number."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(char) in "WFA" else 1 for char in text)


def safe_for(out: TextIO | None, text: str) -> str:
    """External text for `out`: made safe where that is a terminal, raw elsewhere."""
    try:
        on_terminal = out is not None and out.isatty()
    except ValueError:
        return text  # closed
    return display_safe(text, keep_layout=True) if on_terminal else text


def is_terminal() -> bool:
    """Whether there is a person to ask: input and messages both on a terminal."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:
        return False  # closed
