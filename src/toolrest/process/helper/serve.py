"""The owner process: keep a keeper ready, notice the host's death, kill what is left."""

from __future__ import annotations

import _socket
import gc
import os
import resource
import select
import sys
from mmap import mmap

from . import keeper, kernel, launch, litter, signals, tree, wire

_RETRY_MS = 10
_GIVE_UP = 10.0
_CLOSING_MS = 5000
_DYING = 60.0
_LOOK_MS = 50
_BROKEN = 70
_AGAIN = 11
_PLACES = 4096


class ProcessRoot:
    """The root of all processes of one session."""

    def __init__(self, host: int) -> None:
        self.me = os.getpid()
        self.wake = signals.listen()
        # Keepers hold the reading end of `life`; only the owner holds the writing end, so its
        # death, however it comes, is an event for each of them.
        self.keepers_life, self.life = os.pipe()
        self.news, self.keepers_news = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        # One byte a keeper, idle or busy; only the last idle one reports that it becomes busy.
        self.board = mmap(-1, _PLACES)
        self.keepers: dict[int, int] = {}
        self.failures = 0
        self.watched = select.poll()
        self.watched.register(self.wake, select.POLLIN)
        self.watched.register(self.news.fileno(), select.POLLIN)
        self.watched.register(wire.SOCKET_FD, select.POLLRDHUP)
        self.host = self._watch(host)

    def _watch(self, host: int) -> int:
        """Watch the host's process too: a forked copy of the host may hold the socket open."""
        try:
            fd = os.pidfd_open(host)
        except (AttributeError, OSError):
            return -1
        if os.getppid() != host:
            os.close(fd)
            return -1
        self.watched.register(fd, select.POLLIN)
        return fd

    def serve(self, records: str) -> None:
        """Serve until the host closes its end or dies."""
        self._fork_keeper()
        if records:  # a keeper sees to commands meanwhile
            litter.sweep(records)
        while True:
            ready = dict(self.watched.poll())
            if self.host in ready or signals.drain(self.wake):
                return
            event = ready.get(wire.SOCKET_FD, 0)
            if event & (select.POLLRDHUP | select.POLLHUP | select.POLLERR):
                return
            if self.news.fileno() in ready:
                self.news.recv(512)
                self.failures = 0
            self._reap()
            self._provide(bool(event))

    def _provide(self, requested: bool) -> None:
        """Have a keeper ready; where that keeps failing, answer the request with the reason."""
        if self.board.find(wire.IDLE, 0) >= 0:
            return
        if self.failures and not requested:
            # No keeper is listening now, so the owner itself must notice the next request.
            self.watched.modify(wire.SOCKET_FD, select.POLLRDHUP | select.POLLIN)
            return
        if self.failures > 1:
            self._refuse()
        self.watched.modify(wire.SOCKET_FD, select.POLLRDHUP)
        self._fork_keeper()

    def _fork_keeper(self) -> None:
        place = self.board.find(wire.FREE, 0)
        # Before the fork: the keeper may be busy before this process runs again.
        self.board[place : place + 1] = wire.IDLE
        try:
            pid = os.fork()
        except OSError:
            self.board[place : place + 1] = wire.FREE
            self.failures += 1
            self.watched.modify(wire.SOCKET_FD, select.POLLRDHUP | select.POLLIN)
            return
        if pid == 0:
            self._become_keeper(place)
        self.keepers[pid] = place

    def _become_keeper(self, place: int) -> None:
        try:
            self.news.close()
            for fd in (self.life, self.wake, self.host):
                if fd >= 0:
                    os.close(fd)
            keeper.Keeper(
                self.keepers_life, wire.SOCKET_FD, self.keepers_news, self.board, place
            ).serve()
            os._exit(0)
        finally:
            os._exit(_BROKEN)

    def _refuse(self) -> None:
        entry = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, wire.SOCKET_FD)
        try:
            received = launch.receive(entry)
        except BlockingIOError:
            return
        finally:
            entry.detach()
        if received is not None:
            link, _, fds = received
            answer = _socket.socket(fileno=link)
            answer.send(
                wire.pack(wire.FAILED, wire.STEPS.index("fork"), _AGAIN),
                _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT,
            )
            answer.close()
            for fd in fds:
                os.close(fd)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            place = self.keepers.pop(pid, None)
            if status or place is None:
                self._kill_orphans()
            if place is not None:
                self.failures += bool(status) and self.board[place] == wire.IDLE[0]
                self.board[place : place + 1] = wire.FREE

    def _kill_orphans(self) -> None:
        """Kill the tree that a killed keeper left to us: every child that is not a keeper.

        Killing may leave more orphans; they are killed at the next SIGCHLD.
        """
        for pid in tree.children(self.me):
            if pid not in self.keepers:
                tree.send([pid], tree.SIGSTOP)
                tree.strike(pid)
                tree.send([pid], tree.SIGKILL)

    def end(self) -> None:
        """Kill every process below, keepers too, until the kernel reports none."""
        until = tree.deadline(_GIVE_UP)
        woken = select.poll()
        woken.register(self.wake, select.POLLIN)
        while tree.left(until):
            tree.strike(self.me)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            woken.poll(_RETRY_MS)
            signals.drain(self.wake)


def main(host: int, group: str, records: str, watched: str) -> None:
    """Set this process up as the owner, in its control group if any, and serve its host.

    `records` is where placeholders are recorded, if anywhere, `watched` the folder of the record
    of names that commands may have changed.
    """
    kernel.close_from(wire.SOCKET_FD + 1)
    os.set_inheritable(wire.SOCKET_FD, False)
    os.chdir("/")
    signals.reset()
    _no_core_dumps()
    kernel.become_subreaper()
    _join(group)
    kernel.hide_memory()
    owner = ProcessRoot(host)
    gc.disable()
    gc.freeze()
    try:
        owner.serve(records)
    finally:
        owner.end()
        is_clean = not records or litter.sweep(records)
        _join(group.rpartition("/")[0])
        _remove(group)
        if watched:
            _compare(watched, owner.host)
        if not is_clean:
            os.close(wire.SOCKET_FD)  # with what the host sent last, and the locks in it
            if os.fork() == 0:
                _sweep_later(records, owner.host)
        os._exit(0)


def _compare(watched: str, host: int) -> None:
    """Have what a dead host's commands changed put back: by a program that has all of Toolrest.

    A host that lives does so itself, and so does one that had no command running.
    """
    gone = select.poll()
    if host >= 0:
        gone.register(host, select.POLLIN)
        if not gone.poll(0):
            return
    if not os.access(f"{watched}/living", os.F_OK):
        return
    argv = [sys.executable, "-I", "-m", "toolrest.agent.undo.dead_records", watched]
    os.posix_spawn(sys.executable, argv, os.environ)


def _sweep_later(records: str, host: int) -> None:
    """Sweep when the last of the host's locks is gone: its socket closes before them.

    A child that it forked this moment has them until it execs. In a process of its own, since a
    host that lives waits for this one's end. What is in use for longer is another session's, which
    has a helper, too.
    """
    until = tree.deadline(_DYING)
    gone = select.poll()
    if host >= 0:
        gone.register(host, select.POLLIN)
        if not gone.poll(_CLOSING_MS):
            return  # it lives, and removes its own
        gone.unregister(host)
    while not litter.sweep(records) and tree.left(until):
        gone.poll(_LOOK_MS)


def _no_core_dumps() -> None:
    """Disable core dumps for this tree; a crash would else start the host's crash handler.

    The kernel hands a core to a handler program even when the limit is 0; 1 is the value that
    turns the handler off, and a file of one byte is too small to be written.
    """
    _, ceiling = resource.getrlimit(resource.RLIMIT_CORE)
    most = 0 if ceiling == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def _join(group: str) -> None:
    """Move this process into a control group; failing is harmless."""
    if not group:
        return
    try:
        fd = os.open(f"{group}/cgroup.procs", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(fd, b"0")
    except OSError:
        return
    finally:
        os.close(fd)


def _remove(group: str) -> None:
    try:
        os.rmdir(group)
    except OSError:
        return
