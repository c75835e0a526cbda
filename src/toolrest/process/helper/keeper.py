"""One command and everything that descends from it: start, report, signal, kill, reap."""

from __future__ import annotations

import _socket
import os
import select
import struct
from mmap import mmap

from . import kernel, launch, signals, tree, wire

_RETRY_MS = 10
_PATIENCE = 2.0
_STUBBORN_MS = 250
_IDLE_ENOUGH = 2  # so that one gets ready again while the other is busy


class Keeper:
    """The parent of one command; a subreaper, so that no descendant can leave.

    When the command's tree is gone, nothing of it is left here either, and the keeper can take
    the next one: forking anew would cost more than everything else that it does.
    """

    def __init__(
        self, life: int, requests: int, owner: _socket.socket, board: mmap, place: int
    ) -> None:
        kernel.become_subreaper()
        self.me = os.getpid()
        self.life = life
        self.requests = requests
        self.owner = owner
        self.board = board
        self.place = place
        self.wake = signals.listen()
        self.watched = select.poll()
        self.watched.register(self.wake, select.POLLIN)
        self.watched.register(self.life, 0)
        self.ending = False
        self._prepare()

    def serve(self) -> None:
        """See commands to their end, one after the other, until others are idle enough."""
        while self._take():
            self._attend()
            self.host.close()
            if self.ending or self.board[:].count(wire.IDLE) >= _IDLE_ENOUGH:
                return
            self._prepare()
            self.board[self.place : self.place + 1] = wire.IDLE

    def _prepare(self) -> None:
        """Fork the next command's process ahead of its time."""
        self.status: int | None = None
        self.launcher = False
        self.announce = True
        self.childless = False
        self.starting, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self.child = os.fork()
        if self.child == 0:
            launch.serve(self.requests, theirs, self.me)
        theirs.close()
        self.watched.register(self.starting.fileno(), select.POLLIN)

    def _take(self) -> bool:
        """Wait until the child has a command; False when there will be none."""
        while True:
            ready = dict(self.watched.poll())
            if self.life in ready or signals.drain(self.wake):
                return False
            if self.starting.fileno() in ready:
                break
        # Two keepers that become busy at once must not both believe that the other is idle: say
        # so first, look afterwards, with a system call in between.
        self.board[self.place : self.place + 1] = wire.BUSY
        record, ancillary, _, _ = self.starting.recvmsg(
            64, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC
        )
        if not ancillary:
            return False
        if self.board.find(wire.IDLE, 0) < 0:
            self._ask_for_another()
        announce, launcher = wire.unpack(record)
        self.announce, self.launcher = bool(announce), bool(launcher)
        self.host = _socket.socket(fileno=struct.unpack("i", ancillary[0][2])[0])
        if not self.announce:
            # What became of exec is then read when the command has ended.
            self.watched.unregister(self.starting.fileno())
        return True

    def _ask_for_another(self) -> None:
        try:
            self.owner.send(b"k", _socket.MSG_NOSIGNAL)
        except OSError:
            self.ending = True

    def _attend(self) -> None:
        self.watched.register(self.host.fileno(), select.POLLIN)
        self._reap()  # its end may have been the very news that woke us for its beginning
        while not self.childless:
            ready = dict(self.watched.poll())
            if self.life in ready or signals.drain(self.wake):
                self.ending = True
                self._end_all(0)
                break
            if self.announce and self.starting.fileno() in ready:
                self._note_start()
            if self.host.fileno() in ready:
                self._obey()
            self._reap()
        self.watched.unregister(self.host.fileno())

    def _note_start(self) -> None:
        """The child's end closes by itself when exec succeeds; else it says what failed."""
        record = self.starting.recv(64)
        if self.announce:
            self.watched.unregister(self.starting.fileno())
        self.starting.close()
        if record:
            self._send(record)
        elif self.announce:
            self._tell(wire.STARTED, self.child, self.me)

    def _obey(self) -> None:
        """Do what the host asks; a host that is gone asks for the end."""
        try:
            record = self.host.recv(4096)
        except OSError:
            record = b""
        verb, number = wire.unpack(record)[:2] if record else (wire.KILL, 0)
        if verb == wire.SIGNAL:
            self._signal(number)
        elif verb == wire.KILL:
            self._end_all(number)

    def _signal(self, number: int) -> None:
        """To the command's process group; a launcher is spared, its death would end the tree."""
        if self.launcher or self.status is not None:
            tree.send([pid for pid in tree.descendants(self.me) if pid != self.child], number)
            return
        try:
            os.killpg(self.child, number)
        except OSError:
            return

    def _reap(self) -> None:
        """Collect whoever ended; tell the host when it was the command itself."""
        ended = False
        while not self.childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                break
            if pid == 0:
                break
            if pid == self.child:
                self.status, ended = status, True
        if ended:
            if self.starting.fileno() >= 0:
                self._note_start()
            if self.launcher:
                tree.strike(self.me)  # what is left of a namespace is dying already
            left = [] if self.childless or self.launcher else tree.descendants(self.me)
            left = [pid for pid in left if tree.alive(pid)]
            self._tell(wire.EXITED, self.status or 0, self.child, self.me, *left)

    def _end_all(self, grace_ms: int) -> None:
        """End the tree: SIGTERM, a while to clean up, then stop and kill until nobody is left."""
        if grace_ms > 0:
            spared = self.child if self.launcher else 0
            pids = [pid for pid in tree.descendants(self.me) if pid != spared]
            tree.send(pids, 15)
            tree.send(pids, tree.SIGCONT)
            self._wait_childless(tree.deadline(grace_ms / 1000))
        until = tree.deadline(_PATIENCE)
        while tree.left(until):
            tree.strike(self.me)
            if self._wait_childless(tree.deadline(_RETRY_MS / 1000)):
                self._tell(wire.SURVIVORS)
                return
        self._tell(wire.SURVIVORS, *filter(tree.alive, tree.descendants(self.me)))
        while not self._wait_childless(tree.deadline(_STUBBORN_MS / 1000)):
            tree.strike(self.me)

    def _wait_childless(self, until: float) -> bool:
        woken = select.poll()
        woken.register(self.wake, select.POLLIN)
        self._reap()
        while not self.childless and tree.left(until):
            woken.poll(tree.left(until))
            self.ending = signals.drain(self.wake) or self.ending
            self._reap()
        return self.childless

    def _tell(self, *numbers: int) -> None:
        self._send(wire.pack(*numbers))

    def _send(self, record: bytes) -> None:
        try:
            self.host.send(record, _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT)
        except OSError:
            return  # the host is gone or not reading; the poll loop sees the former
