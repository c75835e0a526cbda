"""The first paint of the chat, before its code is loaded: the line to write in.

What is typed meanwhile waits for the chat, and is not echoed by the terminal.
"""

from __future__ import annotations

import os
import signal
import termios
from types import FrameType
from typing import Any

_ROW = "\r\n› {}\x1b[A\r"
"""The mark is where the chat will draw it; the cursor stays, for the chat begins there."""
_INVITES = "\x1b[90mAsk anything · @ files · / commands\x1b[0m"
_ROOM = 40
_ERASE = b"\r\x1b7\x1b[K\x1b[1B\x1b[J\x1b8"
"""Row by row: terminals move what is erased from the top left on into their scrollback."""
_LFLAG, _IFLAG = 3, 0
_before: list[Any] = []
"""The terminal's settings, while they are changed."""


def paint(words: list[str]) -> None:
    """Paint for a chat on a terminal; nothing for other commands."""
    if words not in ([], ["chat"]) or not (os.isatty(0) and os.isatty(1)):
        return
    try:
        _before[:] = termios.tcgetattr(0)
        changed = termios.tcgetattr(0)
        changed[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
        changed[_IFLAG] &= ~termios.ICRNL  # Enter is told from Ctrl-J
        termios.tcsetattr(0, termios.TCSANOW, changed)
    except termios.error:
        _before.clear()
        return
    signal.signal(signal.SIGTERM, _ended)
    invites = not os.environ.get("NO_COLOR") and os.get_terminal_size(1).columns > _ROOM
    os.write(1, _ROW.format(_INVITES if invites else "").encode())


def take_back() -> None:
    """Give the terminal back as it was, for the chat or for whatever is printed instead of it."""
    if _before:
        os.write(1, _ERASE)
        termios.tcsetattr(0, termios.TCSANOW, _before)
        _before.clear()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ended(number: int, frame: FrameType | None) -> None:
    take_back()
    os.kill(os.getpid(), number)
