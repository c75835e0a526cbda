"""Arguments sent to bubblewrap after its start, so that the view is worked out meanwhile.

It reads its arguments from a socket first, and goes on at their end. They are sent as one message,
which the kernel hands over whole or not at all: whenever this process may die, bubblewrap has all
arguments or none. With none there is no file in its sandbox, and so no program that it could start.
"""

from __future__ import annotations

import _socket
import os

LONGEST = 32_000
"""What the kernel takes as one piece, unless its buffers were made smaller."""

_OVERHEAD = 1024


class ArgumentPipe:
    """Arguments that a launcher waits for; `waiting` is the descriptor it is given."""

    def __init__(self) -> None:
        self._here, there = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.fd = there.detach()
        self._open = True
        buffer = self._here.getsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF)
        self.room = min(LONGEST, buffer // 2 - _OVERHEAD)
        """How many bytes can be handed over whole."""

    def send(self, arguments: bytes) -> bool:
        """Let the launcher go on; False when they did not go over whole: then it must be ended."""
        if len(arguments) > self.room:
            return False
        try:
            if self._here.send(arguments, _socket.MSG_NOSIGNAL) != len(arguments):
                return False
            # Not only closed: a fork of this process may hold a copy for as long as it lives.
            self._here.shutdown(_socket.SHUT_WR)
        except (BrokenPipeError, ConnectionError):
            return True  # it was killed meanwhile, as its end will say
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let go of the socket; a launcher that was given nothing starts nothing."""
        if self._open:
            self._open = False
            self._here.close()
            os.close(self.fd)
