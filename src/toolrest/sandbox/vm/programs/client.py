"""The client of one command in the machine: its standard streams, its signals, its exit code.

A process of the host that stands for the command: the process room reads its output, types into
its terminal, and ends it. When it dies, the machine kills what it stands for.

argv: descriptor of the channel, descriptor of the command (START's payload), and what standard
input is: `none`, `input` or `tty`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
from typing import Any

from . import frames

_STREAM = 1
"""Its number on this channel; the host gives it another one."""
_LOST = 137
_PASSED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT")


def main(channel: str, command: str, stdin: str) -> int:
    """Run the command to its end; its exit code."""
    with open(int(command), "rb") as file:
        start = file.read()
    client = CommandClient(int(channel), stdin != "none")
    before = _raw(0) if stdin == "tty" else None
    try:
        client.send(frames.pack(frames.START, _STREAM, bytes([_same(1, 2)]) + start))
        if before is not None:
            client.resize()
        return client.run()
    except (BrokenPipeError, ConnectionError):
        return client.lost()
    finally:
        if before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, before)


class CommandClient:
    """One command's end on the host's side."""

    def __init__(self, channel: int, reads: bool) -> None:
        self._channel = channel
        self._reads = reads
        self._credit = frames.WINDOW
        self._frames = frames.Reader(frames.FROM_MACHINE)
        self._closed: set[int] = set()
        self._news, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for name in (*_PASSED, "SIGWINCH"):
            signal.signal(getattr(signal, name), _noted)

    def send(self, data: bytes) -> None:
        """All of it; the host always reads."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._channel, rest) :]

    def run(self) -> int:
        """Carry bytes until the command has ended; its exit code."""
        while True:
            watched = [self._channel, self._news]
            if self._reads and self._credit > 0:
                watched.append(0)
            ready = select.select(watched, [], [])[0]
            if self._news in ready:
                self._pass_signals()
            if 0 in ready:
                self._read_input()
            if self._channel in ready:
                code = self._receive()
                if code is not None:
                    return code

    def _receive(self) -> int | None:
        data = os.read(self._channel, frames.MOST)
        if not data:
            return self.lost()
        for kind, _, payload in self._frames.feed(data):
            if kind == frames.EXIT:
                return payload[0]
            if kind == frames.CREDIT:
                self._credit += frames.number(payload)
            elif kind in (frames.OUT, frames.ERR):
                self._write(1 if kind == frames.OUT else 2, payload)
                self.send(frames.credit(_STREAM, len(payload)))
        return None

    def _write(self, fd: int, data: bytes) -> None:
        """What nothing reads any more is dropped; the command finds out by its own pipe or not."""
        rest = memoryview(data)
        while rest and fd not in self._closed:
            try:
                rest = rest[os.write(fd, rest) :]
            except OSError:
                self._closed.add(fd)

    def _read_input(self) -> None:
        try:
            data = os.read(0, min(self._credit, frames.MOST))
        except OSError:  # the terminal is gone
            data = b""
        self._credit -= len(data)
        self._reads = bool(data)
        self.send(frames.pack(frames.INPUT if data else frames.END, _STREAM, data))

    def _pass_signals(self) -> None:
        for number in os.read(self._news, 64):
            if number == signal.SIGWINCH:
                self.resize()
            else:
                self.send(frames.pack(frames.SIGNAL, _STREAM, bytes([number])))

    def resize(self) -> None:
        """Give the command's terminal the size of this one."""
        try:
            rows, cols, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
        except OSError:
            return
        if rows and cols:
            self.send(frames.resize(_STREAM, rows, cols))

    def lost(self) -> int:
        """Say that the machine is gone."""
        self._write(2, b"toolrest: the virtual machine ended before the command did\n")
        return _LOST


def _same(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same place, so that their bytes must keep their order."""
    first, second = os.fstat(one), os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _noted(number: int, frame: Any) -> None:
    """Handlers only make the signal a byte of news."""


def _raw(fd: int) -> list[Any] | None:
    """Let every byte through as it is: the terminal in the machine does the rest."""
    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        return None
    after = [before[0] & ~_INPUT, before[1] & ~termios.OPOST, before[2], before[3] & ~_LOCAL]
    characters = list(before[6])
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSANOW, [*after, before[4], before[5], characters])
    return before


_INPUT = (
    termios.BRKINT
    | termios.ICRNL
    | termios.INLCR
    | termios.IGNCR
    | termios.INPCK
    | termios.ISTRIP
    | termios.IXON
)
_LOCAL = termios.ECHO | termios.ECHONL | termios.ICANON | termios.IEXTEN | termios.ISIG
