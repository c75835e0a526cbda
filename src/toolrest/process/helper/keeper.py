"""The keeper of one command and its descendants: start, report, signal, kill, reap."""

from __future__ import annotations

import _socket
import os
import select
from mmap import mmap

from . import kernel, launch, signals, tree, wire

_RETRY_MS = 10
_DYING_MS = 5
_TREE_MS = 50
_PATIENCE = 2.0
_STUBBORN_MS = 250
_NOT_RUN = 127 << 8
_LOOKS_MS = (2, 3, 6, 12)  # a launcher makes its namespaces soon after it was started
_REST_MS = 30  # without a command that starts or ends: then there is time to clean up
_MOST_MOUNTS = 64  # about 150 kB each, in the kernel
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
        self.requests = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, requests)
        self.owner = owner
        self.board = board
        self.place = place
        self.wake = signals.listen()
        self.idle = select.epoll()
        self.idle.register(self.wake, select.EPOLLIN)
        self.idle.register(self.life, 0)
        # A request wakes only one idle keeper.
        self.idle.register(requests, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        self.watched = select.poll()
        self.watched.register(self.wake, select.POLLIN)
        self.watched.register(self.life, 0)
        self.starting: _socket.socket | None = None
        self.masking: _socket.socket | None = None
        self.ending = False
        self.mounts: list[int] = []
        self.held: list[int] = []
        """Descriptors whose locks say that the command is still running, should the host die."""

    def serve(self) -> None:
        """Run commands to their end, one after the other, until enough other keepers are idle."""
        while self._take():
            self._attend()
            self.host.close()
            while self.held:
                os.close(self.held.pop())
            if self.ending or self.board[:].count(wire.IDLE) >= _IDLE_ENOUGH:
                return
            self._mark(wire.IDLE)

    def _mark(self, state: bytes) -> None:
        self.board[self.place : self.place + 1] = state

    def _take(self) -> bool:
        """Wait for a command and start it; False when there will be none."""
        while True:
            ready = dict(self.idle.poll(_REST_MS / 1000 if self.mounts else None))
            if not ready:
                self._drop_mounts()
            if self.life in ready or (self.wake in ready and signals.drain(self.wake)):
                return False
            if self.requests.fileno() not in ready:
                continue
            # Two keepers that become busy at once must not both believe that the other is idle:
            # mark first, look afterwards, with a system call in between.
            self._mark(wire.BUSY)
            try:
                received = launch.receive(self.requests)
            except BlockingIOError:
                self._mark(wire.IDLE)  # another keeper was faster
                continue
            break
        if received is None:
            return False
        link, payload, fds = received
        self.host = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, link)
        self._start(launch.decode(payload), fds)
        if self.board.find(wire.IDLE, 0) < 0:
            self._ask_for_another()
        return True

    def _start(self, request: launch.Request, fds: list[int]) -> None:
        self.status: int | None = None
        self.launcher = request[-1]
        self.childless = False
        self.child = 0
        self.held = [fds.pop() for _ in range(request[-2])]
        apart, self.check, self.masks, *_ = request[-5:]
        if apart or self.masks or self.check is not None:
            self.masking, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            fds.append(theirs.detach())
            request = launch.with_descriptor(request, wire.MASKS_FD, len(fds) - 1)
            self.watched.register(self.masking.fileno(), select.POLLIN)
        try:
            if launch.needs_fork(request):
                self.child, self.starting = launch.fork(request, fds, self.me)
                self.watched.register(self.starting.fileno(), select.POLLIN)
            else:
                self.child = launch.spawn(request, fds)
                self._tell(wire.STARTED, self.child, self.me)
        except launch.Failed as failure:
            self.childless = True
            self._tell(wire.FAILED, failure.step, failure.number)
            self._tell(wire.EXITED, _NOT_RUN, 0, self.me, 1)
        finally:
            for fd in fds:
                os.close(fd)

    def _ask_for_another(self) -> None:
        try:
            self.owner.send(b"k", _socket.MSG_NOSIGNAL)
        except OSError:
            self.ending = True

    def _attend(self) -> None:
        self.watched.register(self.host.fileno(), select.POLLIN)
        looks = iter(_LOOKS_MS if self.launcher and len(self.mounts) < _MOST_MOUNTS else ())
        pause: int | None = next(looks, _REST_MS)
        held, apart = 0, not self.launcher
        while not self.childless:
            ready = dict(self.watched.poll(pause))
            if not ready:
                if pause == _REST_MS:
                    self._drop_mounts(held)  # what ended commands had in memory goes with them
                    apart = apart or self._keep_apart()
                    pause = None if apart else _REST_MS
                else:
                    held = self._hold_mounts()
                    pause = _REST_MS if held else next(looks, _REST_MS)
                continue
            # Drain the signals first, then reap: a child that ends later sends another signal.
            asked = self.wake in ready and signals.drain(self.wake)
            self._reap()
            if self.life in ready or asked:
                self.ending = True
                self._end_all(0)
                break
            if self.starting is not None and self.starting.fileno() in ready:
                self._note_start(self.starting)
            if self.masking is not None and self.masking.fileno() in ready:
                self._mask(self.masking)
            if self.host.fileno() in ready:
                self._obey()
        self.watched.unregister(self.host.fileno())
        if self.masking is not None:
            self._end_masking(self.masking)

    def _mask(self, child: _socket.socket) -> None:
        """The child's namespace is ready: mount its masks, then let it go on; else end it."""
        asked = child.recv(1)
        below = tree.children(self.child) if asked else []
        said = launch.mask(below[0], self.masks, self.check) if below else None
        if said is not None:
            child.send(said, _socket.MSG_NOSIGNAL)
        elif asked:
            self._end_all(0)
        self._end_masking(child)

    def _end_masking(self, child: _socket.socket) -> None:
        self.watched.unregister(child.fileno())
        child.close()
        self.masking = None

    def _keep_apart(self) -> bool:
        """Keep what the host mounts from now on from the command; False while it has no view."""
        below = tree.children(self.child)
        if below:
            launch.keep_apart(below[0])
        return bool(below)

    def _hold_mounts(self) -> int:
        """Keep the launcher's mounts until there is time to take them down, which takes a while.

        Else the last process of the tree takes them down before it counts as dead, as it does
        where commands follow each other without a pause.
        """
        for pid in tree.children(self.child):
            try:
                self.mounts.append(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC))
                return 1
            except OSError:
                continue
        return 0

    def _drop_mounts(self, but: int = 0) -> None:
        """Release held mounts except the latest `but`."""
        while len(self.mounts) > but:
            os.close(self.mounts.pop(0))

    def _note_start(self, starting: _socket.socket) -> None:
        """Read the child's end of the start socket: closed when exec succeeded, else the error."""
        record = starting.recv(64)
        self.watched.unregister(starting.fileno())
        starting.close()
        self.starting = None
        if record:
            self._send(record)
        else:
            self._tell(wire.STARTED, self.child, self.me)

    def _obey(self) -> None:
        """Carry out the host's requests; end the tree when the host is gone."""
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
        """Signal the command's process group, but not a launcher: its death would end the tree."""
        if self.launcher or self.status is not None:
            tree.send([pid for pid in tree.descendants(self.me) if pid != self.child], number)
            return
        try:
            os.killpg(self.child, number)
        except OSError:
            return

    def _reap(self) -> None:
        """Reap ended children; report to the host when the command itself ended."""
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
            if self.starting is not None:
                self._note_start(self.starting)
            left: list[int] = []
            if self.launcher and not self.childless:
                # The rest of a pid namespace is killed with its first process, but not at once.
                # Until then one of them could still do what the launcher's mounts forbid.
                if not self._wait_childless(tree.deadline(_DYING_MS / 1000)):
                    tree.send(tree.children(self.me) or tree.descendants(self.me), tree.SIGKILL)
                    self._wait_childless(tree.deadline(_TREE_MS / 1000))
            elif not self.childless:
                left = [pid for pid in tree.descendants(self.me) if tree.alive(pid)]
            status, gone = self.status or 0, int(self.childless)
            self._tell(wire.EXITED, status, self.child, self.me, gone, *left)

    def _end_all(self, grace_ms: int) -> None:
        """End the tree: SIGTERM, a while to clean up, then stop and kill until none is left."""
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
