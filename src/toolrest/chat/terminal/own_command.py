"""A command of the person's own, in a terminal of its own that is relayed to the person's.

So it has a real terminal, the person sees all that it writes, and there is a copy of that. Keys go
to it as they come: Ctrl-C and Ctrl-Z are its terminal's to understand. When it stops, the chat
stops, too, and both go on together.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from msgspec import Struct

from toolrest.chat.terminal import own_job
from toolrest.process.output.terminal_text import PlainText

_KEPT = 256 * 1024
"""Bytes of the output that are kept, at its beginning and at its end."""
_LOOK = 0.2
"""Seconds between two looks at the size of the terminal."""
_GOES = 0.5
"""Seconds in which a command that is hung up may end."""
_PIECE = 65536
_MODES = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
_ON = {b"7", b"25"}
"""Modes that are on in a terminal at rest; all others are off."""
_SCREENS = (b"47", b"1047", b"1049")
_WHOLE_SCREEN = re.compile(
    r"\x1b\[\?(?:47|1047|1049)h.*?(?:\x1b\[\?(?:47|1047|1049)l|\Z)", re.DOTALL
)
_AT_REST = b"\x1b[0m\x1b(B\x0f\x1b>"


class Ran(Struct):
    """A command that has ended: its exit code, negative for a signal, and its output as text."""

    code: int
    output: str
    seconds: float
    unread: str = ""
    """What was typed ahead, and the command did not read."""


async def run_in_terminal(line: str, cwd: str, env: Mapping[str, str]) -> Ran:
    """Run a line in the person's shell, on the terminal that is standard input and output."""
    stop, stopped = os.pipe()
    relay = _Relay(stop)
    work = asyncio.ensure_future(asyncio.to_thread(relay.run, line, cwd, env))
    try:
        return await asyncio.shield(work)
    finally:
        os.close(stopped)  # the chat ends: so does the command
        if not work.done():
            with suppress(Exception):
                await work
        os.close(stop)


class _Relay:
    """The terminal of the command, and what goes through it."""

    def __init__(self, stop: int) -> None:
        self._stop = stop
        self._master = -1
        self._head, self._tail = bytearray(), bytearray()
        self._lost = False
        self._modes: dict[bytes, bool] = {}
        self._keys = b""

    def run(self, line: str, cwd: str, env: Mapping[str, str]) -> Ran:
        """Start it, relay until it ends, and put the terminal back as it was."""
        began = monotonic()
        self._master, slave = pty.openpty()
        ours, theirs = socket.socketpair()
        self._fit()
        shell = env.get("SHELL") or "/bin/sh"
        argv = [sys.executable, "-I", "-S", own_job.__file__, shell, line, str(theirs.fileno())]
        try:
            with _raw(0), ours:
                child = subprocess.Popen(
                    argv,
                    stdin=slave,
                    stdout=slave,
                    stderr=slave,
                    cwd=cwd,
                    env=dict(env),
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
                theirs.close()
                os.close(slave)
                try:
                    code = self._relay(ours)
                finally:
                    ours.close()
                    self._hang_up(child)
                    os.close(self._master)
        finally:
            self._put_back()
        unread = self._keys.decode("utf-8", "replace").replace("\r", "\n")
        return Ran(code, self._text(), monotonic() - began, unread)

    def _relay(self, ours: socket.socket) -> int:
        os.set_blocking(self._master, False)
        while True:
            wanted = [self._master, ours.fileno(), self._stop]
            wanted += [] if self._keys else [0]
            ready, free, _ = select.select(wanted, [self._master] if self._keys else [], [], _LOOK)
            self._fit()
            if self._stop in ready:
                return -signal.SIGHUP
            if self._master in ready:
                self._show()
            if free:
                with suppress(BlockingIOError):
                    self._keys = self._keys[os.write(self._master, self._keys) :]
            if 0 in ready and not self._keys:
                self._keys = os.read(0, 1024)
                if not self._keys:
                    return -signal.SIGHUP  # the terminal is gone
            if ours.fileno() in ready:
                said = ours.recv(1)
                if said != b"T":
                    while self._show():
                        pass
                    return self._ended(ours) if said else -signal.SIGHUP
                self._suspend()
                ours.send(b"C")

    def _hang_up(self, child: subprocess.Popen[bytes]) -> None:
        """Wait for its end; where the chat ends first it is told, and then killed."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            with suppress(OSError):
                if (job := os.tcgetpgrp(self._master)) not in (0, child.pid):
                    os.killpg(job, number)
                    os.killpg(job, signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(_GOES)
                return
        child.kill()
        child.wait()

    def _ended(self, ours: socket.socket) -> int:
        code, count = struct.unpack("iI", ours.recv(8, socket.MSG_WAITALL))
        unread = ours.recv(count, socket.MSG_WAITALL) if count else b""
        self._keys = unread + self._keys
        return int(code)

    def _show(self) -> bool:
        """Relay what it has written; False when there is nothing."""
        try:
            data = os.read(self._master, _PIECE)
        except OSError:  # nothing just now, or nobody has the other end
            return False
        for found in _MODES.finditer(data):
            for mode in found[1].split(b";"):
                self._modes[mode] = found[2] == b"h"
        shown = memoryview(data)
        while shown:
            shown = shown[os.write(1, shown) :]
        room = _KEPT - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * _KEPT:
            del self._tail[:-_KEPT]
            self._lost = True
        return bool(data)

    def _suspend(self) -> None:
        """Stop with the command, as the shell that started us expects, and go on with it."""
        raw = termios.tcgetattr(0)
        termios.tcsetattr(0, termios.TCSADRAIN, _before[-1])
        os.kill(0, signal.SIGTSTP)
        termios.tcsetattr(0, termios.TCSADRAIN, raw)
        self._fit()

    def _fit(self) -> None:
        """Give its terminal the size of the person's."""
        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
            if size != fcntl.ioctl(self._master, termios.TIOCGWINSZ, b"\0" * 8):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _put_back(self) -> None:
        """Undo what a program that died has left on: the other screen, the mouse, colours."""
        left = [mode for mode, is_on in self._modes.items() if is_on != (mode in _ON)]
        left.sort(key=lambda mode: mode in _SCREENS)
        modes = b"".join(b"\x1b[?%s%s" % (mode, b"h" if mode in _ON else b"l") for mode in left)
        last = (self._tail or self._head)[-1:]
        with suppress(OSError):
            os.write(
                1, modes + _AT_REST + (b"" if last in (bytearray(), bytearray(b"\n")) else b"\r\n")
            )

    def _text(self) -> str:
        between = b"\n[...]\n" if self._lost else b""
        data = bytes(self._head) + between + bytes(self._tail)
        text = _WHOLE_SCREEN.sub("", data.decode("utf-8", "replace"))
        plain = PlainText()
        return plain.feed(text.replace("\r\n", "\n")) + plain.flush()


_before: list[Any] = []
"""The settings of the person's terminal, while it is raw."""


@contextmanager
def _raw(fd: int) -> Iterator[None]:
    _before.append(termios.tcgetattr(fd))
    try:
        tty.setraw(fd, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, _before.pop())
