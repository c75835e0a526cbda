"""Reading and writing a child's descriptors through the event loop: no threads, no polling."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import sys
import termios
import weakref
from collections.abc import Callable

CHUNK = 65_536
_PENDING_MOST = 1 << 20


class StreamReader:
    """Passes on the output of a pipe or terminal, chunk by chunk, until its end."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None], *, typed: bool = False) -> None:
        self.fd = fd
        self._typed = typed
        self.on_data = on_data
        self.on_end: Callable[[], None] = _nothing
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._close = weakref.finalize(self, os.close, fd)
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # EIO: the last user of the terminal is gone
        if data:
            self.on_data(data)
        else:
            self.close()

    def close(self) -> None:
        """Stop reading; the end is reported once."""
        if self.ended:
            return
        self.ended = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self.fd)
            if self._typed:  # a terminal is written through the same descriptor
                self._loop.remove_writer(self.fd)
        self._close()
        self.on_end()


class PseudoTerminal:
    """The master side of a pseudo-terminal: size, input, and device number."""

    def __init__(self, master: int, device: tuple[int, int]) -> None:
        self.master = master
        self.device = device
        self.closed = False
        self._pending = bytearray()
        self._loop = asyncio.get_running_loop()

    def resize(self, rows: int, cols: int) -> None:
        """Set the window size; the kernel signals the foreground processes."""
        if not self.closed:
            set_size(self.master, rows, cols)

    @property
    def unsent(self) -> bool:
        """Whether the program has not read all input yet."""
        return bool(self._pending)

    def foreground(self) -> int:
        """Process group that reads the terminal; 0 when there is none."""
        if self.closed:
            return 0
        try:
            answer = fcntl.ioctl(self.master, termios.TIOCGPGRP, b"\0" * 4)
            return int.from_bytes(answer, sys.byteorder, signed=True)
        except OSError:
            return 0

    def type(self, data: bytes) -> bool:
        """Queue input; False when the terminal is closed or its reader is a mebibyte behind."""
        if self.closed or len(self._pending) + len(data) > _PENDING_MOST:
            return False
        waiting = bool(self._pending)
        self._pending += data
        if not waiting:
            self._flush()
        return not self.closed

    def _flush(self) -> None:
        try:
            while self._pending:
                del self._pending[: os.write(self.master, self._pending[:4096])]
        except BlockingIOError:
            self._loop.add_writer(self.master, self._flush)
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self.master)

    def close(self) -> None:
        """Drop unsent input; the descriptor itself belongs to its StreamReader."""
        if self.closed:
            return
        self.closed = True
        self._pending.clear()
        if not self._loop.is_closed():
            self._loop.remove_writer(self.master)


def open_terminal(rows: int, cols: int) -> tuple[int, int]:
    """A new pseudo-terminal: master and slave, sized, with UTF-8 aware line editing."""
    master, slave = os.openpty()
    try:
        set_size(master, rows, cols)
        modes = termios.tcgetattr(slave)
        modes[0] |= getattr(termios, "IUTF8", 0)
        termios.tcsetattr(slave, termios.TCSANOW, modes)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    return master, slave


def set_size(fd: int, rows: int, cols: int) -> None:
    """Set a terminal's window size, within what the kernel can hold."""
    size = (min(max(rows, 1), 65_535), min(max(cols, 1), 65_535))
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


def _nothing() -> None:
    """Default of callbacks that are not set."""
