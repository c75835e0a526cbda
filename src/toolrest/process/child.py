"""A running command as the host sees it: how it started, how it ended, how to end it."""

from __future__ import annotations

import _socket
import asyncio
import os
import signal
import socket
import weakref
from collections.abc import Callable

from msgspec import Struct

from toolrest.errors import ToolrestError
from toolrest.process.helper import tree, wire
from toolrest.process.wakeup import Wakeup

_RECORD = 16_384
_ANSWER_LIMIT = 3.0


class Ended(Struct, frozen=True):
    """The end of the command itself; `background` are the pids of its tree that still ran then."""

    exit_code: int | None
    signal: int | None = None
    background: tuple[int, ...] = ()
    lost: bool = False


class StartFailed(ToolrestError):
    """A command could not be started: the step that failed, and the reason."""

    def __init__(self, step: str, number: int, subject: str) -> None:
        self.step = step
        self.number = number
        self.reason = f"{os.strerror(number)} (os error {number})" if number else "it ended early"
        if step == "request":
            super().__init__(subject)
        else:
            super().__init__(f"{_PHRASES[step]} `{subject}`: {self.reason}")


_PHRASES = {
    "helper": "cannot start the helper that owns all commands with",
    "fork": "cannot create a process for",
    "session": "cannot start a session for",
    "descriptors": "cannot hand descriptors to",
    "terminal": "cannot give a terminal to",
    "links": "cannot hold protected symbolic links in place (replace them by their targets) below",
    "workdir": "cannot enter the working directory",
    "limits": "cannot set the resource limits of",
    "no_new_privs": "cannot confine",
    "landlock": "cannot confine with Landlock",
    "seccomp": "cannot confine with seccomp",
    "exec": "cannot run",
}


class Child:
    """One command and its tree.

    `outputs` are the descriptors to read, standard output first; the caller reads
    them. `pid` is the command's process, `keeper` the helper process right above it.
    """

    def __init__(self, link: _socket.socket, name: str, cwd: str) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.keeper = 0
        self.name = name
        self.cwd = cwd
        self.outputs: tuple[int, ...] = ()
        self.device: tuple[int, int] | None = None
        self.failure: StartFailed | None = None
        self.ended: Ended | None = None
        self.gone = False
        self.dies_as_one = False
        """Whether a namespace of its own takes the whole tree along when the command ends."""
        self.on_change: Callable[[], None] = _nothing
        self.on_gone: Callable[[Child], None] = _nothing_with
        self.on_stuck: Callable[[Child], None] = _nothing_with
        self._loop = loop
        self._link = link
        self._close = weakref.finalize(self, link.close)
        self.wakeup = Wakeup()
        self._survivors: tuple[int, ...] | None = None
        loop.add_reader(link.fileno(), self._read)

    async def started(self) -> None:
        """Return once exec has succeeded; raises StartFailed otherwise."""
        while not (self.pid or self.failure or self.ended):
            await self.wakeup.wait()
        if self.failure is not None:
            raise self.failure

    async def wait(self, seconds: float | None = None) -> Ended | None:
        """Wait for the command's end; None when it did not end within the time."""
        until = None if seconds is None else self._loop.time() + seconds
        while self.ended is None:
            remaining = None if until is None else until - self._loop.time()
            if remaining is not None and remaining <= 0:
                return None
            await self.wakeup.wait(remaining)
        return self.ended

    @property
    def is_over(self) -> bool:
        """Whether the command ended, and with `dies_as_one` its whole tree as well."""
        return self.ended is not None and (self.gone or not self.dies_as_one)

    def descendants(self) -> tuple[int, ...]:
        """Pids of the tree that live now, the command's own included."""
        if self.gone or not self.keeper:
            return ()
        if self.ended is None:
            return tuple(filter(tree.alive, tree.descendants(self.keeper)))
        # The keeper may be getting ready for its next command, so start from what it named.
        below = [pid for root in self.ended.background for pid in (root, *tree.descendants(root))]
        return tuple(filter(tree.alive, dict.fromkeys(below)))

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group."""
        self._tell(wire.SIGNAL, number)

    async def kill(self, grace: float = 0.0) -> tuple[int, ...]:
        """End the whole tree and return when it is dead; pids that cannot be killed come back.

        `grace` is the time between SIGTERM and SIGKILL. The interrupt that a terminal would send
        first is left out on purpose: a shell whose child survives SIGINT goes on with the next
        command of its line.
        """
        self._survivors = None
        self._tell(wire.KILL, int(grace * 1000))
        stuck = self._loop.time() + grace + _ANSWER_LIMIT
        while not self.gone and self.survivors() is None:
            await self.wakeup.wait(stuck - self._loop.time())
            if self._loop.time() >= stuck and not self._answered():
                self.on_stuck(self)
                stuck = self._loop.time() + _ANSWER_LIMIT
        return self.survivors() or ()

    def _answered(self) -> bool:
        """Whether the kill is answered, read from the link itself.

        On a busy machine this task runs before the loop has looked there. A keeper whose answer
        lies unread is not stuck, and may already keep another command.
        """
        while not self.gone and self._survivors is None and self._has_mail():
            self._read()
        return self.gone or self._survivors is not None

    def _has_mail(self) -> bool:
        try:
            self._link.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the link is broken, which the next read finds
        return True

    def survivors(self) -> tuple[int, ...] | None:
        """Pids that the latest kill left alive; None while it is not answered."""
        return self._survivors

    def abandon(self) -> None:
        """Close the link: the keeper kills the tree by itself, without being waited for."""
        self._finish()

    def _tell(self, *numbers: int) -> None:
        if self.gone:
            return
        try:
            self._link.send(wire.pack(*numbers), socket.MSG_NOSIGNAL)
        except OSError:
            return  # a keeper that is gone also closes the link, which is read as the end

    def _read(self) -> None:
        try:
            record = self._link.recv(_RECORD)
        except BlockingIOError:
            return
        except OSError:
            record = b""
        if record:
            self._note(*wire.unpack(record))
        else:
            self._finish()
        self.wakeup.notify()
        self.on_change()

    def _note(self, kind: int, *numbers: int) -> None:
        if kind == wire.STARTED:
            self.pid, self.keeper = numbers
        elif kind == wire.FAILED:
            step = wire.STEPS[numbers[0]]
            subject = self.cwd if step == "workdir" else self.name
            self.failure = StartFailed(step, numbers[1], subject)
        elif kind == wire.EXITED and self.ended is None:
            status, self.pid, self.keeper, gone, *left = numbers
            self.ended = _ended(status, tuple(left))
            if gone:
                self._finish()  # the keeper closes the link a moment later anyway
        elif kind == wire.SURVIVORS:
            self._survivors = numbers

    def _finish(self) -> None:
        if self.gone:
            return
        self.gone = True
        if self.ended is None:
            # No exit status: the keeper was killed, and the tree after it.
            self.ended = Ended(None, signal.SIGKILL, lost=True)
            self._kill_leader()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._link.fileno())
        self._close()
        self.on_gone(self)

    def _kill_leader(self) -> None:
        """Kill the command of a lost keeper, should the owner be gone as well."""
        try:
            if self.pid and os.getsid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            return


def _ended(status: int, background: tuple[int, ...]) -> Ended:
    if os.WIFSIGNALED(status):
        return Ended(None, os.WTERMSIG(status), background)
    return Ended(os.WEXITSTATUS(status), None, background)


def _nothing() -> None:
    """Default of callbacks that are not set."""


def _nothing_with(_child: Child) -> None:
    """Default of callbacks that are not set."""
