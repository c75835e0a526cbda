"""A program on a real terminal, read by a terminal emulator; waits are for the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Any, Self

import pyte

from tests.forked import Forked, can_fork

DEADLINE = 60.0
_UNKNOWN = (b"\x1b[?2026h", b"\x1b[?2026l")


class Screen:
    """A program in a pty. `rows` is what a person sees now, `text` with what has scrolled away.

    `TOOLREST` is forked where it can be; for its start, there is `sys.executable -m toolrest`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        size: tuple[int, int] = (24, 80),
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.raw = self._cut = b""
        self.piece = 65536
        """Bytes that are read at a time; few of them make a slow terminal."""
        self._screen = pyte.HistoryScreen(size[1], size[0], history=100_000, ratio=0.001)
        self._stream = pyte.ByteStream(self._screen)
        self._screen.write_process_input = self._answer  # type: ignore[method-assign]
        self.master, slave = pty.openpty()
        _set_size(slave, size)
        environ = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        self.process = _process(argv, cwd, environ, slave)
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        os.close(self.master)

    def _answer(self, data: str) -> None:
        os.write(self.master, data.encode())

    # Reading

    def read(self, seconds: float = 0.0) -> bool:
        """Take what was written, waiting so long for a beginning; False at the end."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, self.piece)
            except OSError:  # how Linux says that the other end is closed
                return False
            if not data:
                return False
            self.raw += data
            # pyte does not know these; they draw nothing.
            data = self._cut + data
            for mark in _UNKNOWN:
                data = data.replace(mark, b"")
            start = data.rfind(b"\x1b")
            is_cut = start >= 0 and any(mark.startswith(data[start:]) for mark in _UNKNOWN)
            self._cut = data[start:] if is_cut else b""
            self._stream.feed(data.removesuffix(self._cut))
            seconds = 0.0
        return True

    def until(self, holds: Callable[[], Any], what: str = "", seconds: float = DEADLINE) -> None:
        """Read until it holds; the screen is in the message when it never does."""
        deadline = time.monotonic() + seconds
        while not holds():
            left = deadline - time.monotonic()
            alive = self.read(min(0.1, max(0.0, left)))
            if holds():
                return
            if left <= 0 or not alive:
                state = "ended" if not alive else "waited too long"
                raise AssertionError(f"{state}: {what}\n" + "\n".join(self.rows))

    def sees(self, *texts: str) -> None:
        """Wait until all of these are on the screen or above it."""
        for text in texts:
            self.until(partial(self._has, text, everywhere=True), f"{text!r} is not there")

    def shows(self, *texts: str) -> None:
        """Wait until all of these are on the screen."""
        for text in texts:
            self.until(partial(self._has, text), f"{text!r} is not there")

    def _has(self, text: str, everywhere: bool = False) -> bool:
        return text in (self.text if everywhere else self.now)

    def lacks(self, text: str) -> None:
        """Wait until this is not on the screen any more."""
        self.until(lambda: text not in self.now, f"{text!r} is still there")

    def ends(self) -> int:
        """Wait for the program's end; its exit code."""
        self.until(lambda: not self.read(0.05), "it goes on")
        return self.process.wait(DEADLINE)

    @property
    def rows(self) -> list[str]:
        """What is on the screen, row by row."""
        return [row.rstrip() for row in self._screen.display]

    @property
    def now(self) -> str:
        """What is on the screen."""
        return "\n".join(self.rows)

    @property
    def above(self) -> list[str]:
        """The rows that have scrolled away."""
        width = self._screen.columns
        rows = self._screen.history.top
        return ["".join(row[x].data for x in range(width)).rstrip() for row in rows]

    @property
    def text(self) -> str:
        """Everything, scrolled away or not."""
        return "\n".join([*self.above, *self.rows])

    @property
    def coloured(self) -> list[str]:
        """What is on the screen, with its colours, as a terminal would be sent it."""
        rows = [self._screen.buffer[number] for number in range(self._screen.lines)]
        return [_drawn([row[column] for column in range(self._screen.columns)]) for row in rows]

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor."""
        return self._screen.cursor.y, self._screen.cursor.x

    # Acting

    def types(self, text: str) -> None:
        """Type something."""
        os.write(self.master, text.encode())

    def pastes(self, text: str) -> None:
        """Paste something, as terminals mark it."""
        self.types(f"\x1b[200~{text}\x1b[201~")

    def resizes(self, rows: int, columns: int) -> None:
        """Change the size of the terminal."""
        self.read()
        self._screen.resize(rows, columns)
        _set_size(self.master, (rows, columns))


def _process(
    argv: Sequence[str], cwd: str | os.PathLike[str] | None, env: Mapping[str, str], slave: int
) -> Forked | subprocess.Popen[bytes]:
    if can_fork(argv, env):
        return Forked(argv, cwd, env, (slave, slave, slave))
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )


_COLOURS = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
_MARKS = {1: "bold", 3: "italics", 4: "underscore", 7: "reverse"}


def _drawn(cells: Sequence[Any]) -> str:
    parts = []
    for look, same in groupby(cells, key=_look):
        parts.append(f"\x1b[{look}m{''.join(cell.data for cell in same)}")
    return "".join(parts)


def _look(cell: Any) -> str:
    codes = [0, *(code for code, mark in _MARKS.items() if getattr(cell, mark))]
    bright, name = cell.fg.startswith("bright"), cell.fg.removeprefix("bright")
    if name in _COLOURS:
        codes.append((90 if bright else 30) + _COLOURS.index(name))
    return ";".join(map(str, codes))


def _set_size(fd: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
