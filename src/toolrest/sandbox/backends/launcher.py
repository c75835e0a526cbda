"""What we share with bubblewrap, the launcher of commands: arguments, report of a start, errors."""

from __future__ import annotations

import _socket
import os

LONGEST = 32_000
"""What the kernel takes as one piece, unless its buffers were made smaller."""

_OVERHEAD = 1024
_LONGEST_REPORT = 4096


class ArgumentPipe:
    """Arguments sent to bubblewrap after its start, so that the view is worked out meanwhile.

    It reads its arguments from a socket first, and goes on at their end. They are sent as one
    message, which the kernel hands over whole or not at all: whenever this process may die,
    bubblewrap has all arguments or none. With none there is no file in its sandbox, and so no
    program that it could start.
    """

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


class StartReport:
    """A pipe into which bubblewrap writes the exit code of a command, if it started one.

    No process in the sandbox has the descriptor: bubblewrap closes it on the way in. A pipe, since
    a file would be subject to the command's limit on the size of files.
    """

    def __init__(self) -> None:
        self._reading, self.fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._has_run: bool | None = None

    def has_run(self) -> bool:
        """Whether the command was started; known once bubblewrap has ended."""
        if self._has_run is None:
            try:
                self._has_run = b'"exit-code"' in os.read(self._reading, _LONGEST_REPORT)
            except BlockingIOError:
                self._has_run = False
        return self._has_run

    def close(self) -> None:
        """Let go of the pipe."""
        if self._reading >= 0:
            os.close(self._reading)
            os.close(self.fd)
            self._reading, self._has_run = -1, True


def launcher_problem(text: str, code: int) -> str | None:
    """What bubblewrap itself says when it could not start the command; None when it did."""
    first = text.split("\n", 1)[0]
    return first.removeprefix("bwrap: ") if code == 1 and first.startswith("bwrap: ") else None


def disturbed(text: str, code: int | None) -> bool:
    """Whether bubblewrap says that mounts or files changed while it was making the sandbox.

    A folder with a mount inside cannot be overlaid. Those that were there when the command was
    confined are known; one that came a moment later, or a folder that went, makes bubblewrap give
    up before the command. A command could print the same words.
    """
    problem = launcher_problem(text, code or 0)
    return problem is not None and problem.startswith(_OF_CHANGES)


ATTEMPTS = 5
"""How often a sandbox is made for one command, while changes of the machine are in the way."""

DISTURBED = (
    "nothing was run: files or mounts of this machine changed again and again while the sandbox"
    " was being made; call again"
)

_OF_CHANGES = (
    "Can't make overlay mount on /newroot/",
    "Can't find source path /",
    "Can't get type of source /",
    "Can't bind mount /",
    "Can't create file at /",
    "Can't mkdir /",
    "Can't mkdir parents for /",
)
