"""The person at the terminal: one question at a time, lines in, escaped text out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Iterator
from typing import TextIO

from toolrest.policy.terminal_safe import display_safe

_MOST_LINE = 65_536


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
        """Print a line of our own words; what others wrote goes through `shown` first."""
        print(text, file=self._out or sys.stderr, flush=True)

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
    """One line of somebody else's text: nothing in it can act on the terminal or hide."""
    return display_safe(text)


def block(text: str) -> list[str]:
    """Several lines of somebody else's text, each behind a bar so that none looks like ours."""
    return [f"  | {line}" for line in display_safe(text, keep_newlines=True).split("\n")]


def is_terminal() -> bool:
    """Whether there is a person to ask: input and messages both on a terminal."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:
        return False  # closed
