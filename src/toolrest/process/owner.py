"""The host's side of the helper: start commands, and end all of them with the session."""

from __future__ import annotations

import _socket
import array
import asyncio
import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import weakref
from collections.abc import Mapping

from toolrest.errors import ToolrestError
from toolrest.own_code import child_environment, tool_roots
from toolrest.process import helper_request as request
from toolrest.process import limits as cgroup
from toolrest.process.child import Child, StartFailed
from toolrest.process.command import Command
from toolrest.process.helper import tree, wire
from toolrest.process.wakeup import Wakeup, uncancelled

_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper", "__main__.py")
_REAP_MS = 3000
_GRACE = 0.1
_EXIT_LIMIT = 12.0  # the helper itself gives up on what cannot be killed after ten seconds


class Owner:
    """Starts commands and owns their process trees; one helper process, started when needed.

    Belongs to the event loop that first starts a command. Everything it started dies with
    `aclose()`, with the host process however that ends, and when the object is dropped.

    Where a control group can be made, the session gets one; `cgroup_limits` (file name to value,
    such as `pids.max`) are written to it, and `limits` names those that the kernel took.

    `records` is the folder in which placeholders are recorded: the helper, which lives in a session
    of its own, removes what a dead session left of them, when it starts and when it ends.
    `watched` is the folder of the record of names that are compared when the host has died.
    """

    def __init__(
        self,
        *,
        cgroup: bool = True,
        cgroup_limits: Mapping[str, str] | None = None,
        records: str | None = None,
        watched: str = "",
    ) -> None:
        self.cgroup: str | None = None
        self.limits: frozenset[str] = frozenset()
        self._wants_cgroup = cgroup
        self._records = records
        self._watched = watched
        self._cgroup_limits = cgroup_limits or {}
        self.children: set[Child] = set()
        self.pid = 0
        self._link: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dispose: weakref.finalize[..., Owner] | None = None
        self._closed = False
        self._woken: weakref.WeakSet[Child] = weakref.WeakSet()
        self._wakeup = Wakeup()

    async def prepare(self) -> None:
        """Start the helper now, in the background, so that the first command need not wait."""
        self._connect()

    async def start(self, command: Command, *, merge: bool = False) -> Child:
        """Start a command; returns when its program runs, raises StartFailed when it cannot.

        A terminal command has one output; otherwise standard output and standard error are two
        pipes, or one with `merge`. Standard input is the null device unless there is a terminal.
        """
        child = await self.launch(command, merge=merge)
        try:
            await child.started()
        except BaseException as error:
            await _given_up(child, over=isinstance(error, StartFailed))
            raise
        return child

    async def launch(self, command: Command, *, merge: bool = False) -> Child:
        """Send a command on its way without waiting for its program to run."""
        problem = request.unfit(command)
        if problem:
            raise StartFailed("request", 0, problem)
        link: _socket.socket | None = None
        sent: list[int] = []
        reading: list[int] = []
        try:
            link, there = _socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sent.append(there.detach())
            link.setblocking(False)
            plan, device = request.stdio(command, merge, sent, reading)
            payload = request.payload(command, plan)
            if len(payload) > wire.INLINE:
                sent.insert(1, request.memory_file(payload))
                payload = wire.ELSEWHERE
            await self._send(payload, [*sent, *(fd for _, fd in command.fds), *command.held])
        except BaseException as error:
            if link is not None:
                link.close()
            request.close_all(reading)
            if isinstance(error, OSError):
                raise StartFailed("descriptors", error.errno or 0, command.argv[0]) from None
            raise
        finally:
            request.close_all(sent)
        child = Child(link, command.argv[0], command.cwd)
        child.outputs, child.device = tuple(reading), device
        child.dies_as_one = command.own_pid_namespace
        child.on_gone = self.children.discard
        child.on_stuck = self._unstick
        self.children.add(child)
        if command.ready is not None:
            try:
                command.ready()
            except BaseException:
                await _given_up(child)
                raise
        return child

    async def aclose(self) -> tuple[int, ...]:
        """End every tree and the helper; returns the pids that could not be killed."""
        self._closed = True
        if self._link is None or self._loop is not asyncio.get_running_loop():
            self._drop()
            return ()
        ends = await asyncio.gather(*(child.kill(grace=_GRACE) for child in tuple(self.children)))
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)
        for _ in range(2):
            if self._link is not None:
                await self._wakeup.wait(_EXIT_LIMIT)
                self._wake_all()
        self._drop()
        return tuple(pid for left in ends for pid in left)

    def _unstick(self, child: Child) -> None:
        """Wake a keeper that does not answer (a command may have stopped it), or else kill it."""
        if child in self._woken and child.keeper:
            tree.send([child.keeper], signal.SIGKILL)
        self._woken.add(child)
        self._wake_all()

    def _wake_all(self) -> None:
        if self._link is not None:
            tree.send([self.pid, *tree.children(self.pid)], signal.SIGCONT)

    async def _send(self, payload: bytes, fds: list[int]) -> None:
        """Hand a request to the helper; one that died meanwhile is replaced once."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        replaced = False
        while True:
            link = self._connect()
            try:
                link.sendmsg([payload], rights, socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                await self._writable(link)
            except (BrokenPipeError, ConnectionError):
                self._drop()
                if replaced:
                    raise
                replaced = True

    async def _writable(self, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.add_writer(link.fileno(), self._wakeup.notify)
        try:
            await self._wakeup.wait()
        finally:
            loop.remove_writer(link.fileno())

    def _connect(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise ToolrestError("this session is closed; no more commands can be started")
        if self._link is not None and self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise ToolrestError("the session's commands belong to another event loop")
            self._drop()
        if self._link is not None and _is_over(self.pid):
            # Its last keeper may still hold the other end for a moment, and a request sent now
            # would be lost with it.
            self._drop()
        if self._link is None:
            self._loop = loop
            if self._wants_cgroup:
                self.cgroup, self.limits = cgroup.create(self._cgroup_limits)
            self._link, self.pid = _spawn_helper(self.cgroup, self._records, self._watched)
            self._dispose = weakref.finalize(
                self, _end, self._link, self.pid, os.getpid(), self.cgroup
            )
            # The helper never speaks on this socket: readable means that it is gone.
            loop.add_reader(self._link.fileno(), self._drop)
        return self._link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is None or self._dispose is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(link.fileno())
        self._dispose()
        self._wakeup.notify()


def _is_over(pid: int) -> bool:
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True  # and was already reaped elsewhere
    return ended is not None


async def _given_up(child: Child, *, over: bool = False) -> None:
    """End a child that no caller will take, unless it is over, and close its outputs."""
    if not over:
        await uncancelled(asyncio.ensure_future(_killed(child)))
    request.close_all(child.outputs)
    child.abandon()


async def _killed(child: Child) -> None:
    await child.kill()


def _spawn_helper(
    group: str | None, records: str | None, watched: str
) -> tuple[socket.socket, int]:
    if not sys.executable or not sys.platform.startswith("linux"):
        raise ToolrestError("running commands needs Linux and a Python interpreter to run a helper")
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    high = -1
    try:
        # A number above the target, so that the dup2 below is never onto itself.
        high = fcntl.fcntl(there.fileno(), fcntl.F_DUPFD_CLOEXEC, wire.SOCKET_FD + 1)
        pid = os.posix_spawn(
            sys.executable,
            [
                *(sys.executable, "-I", "-S", _MAIN),
                *(str(os.getpid()), group or "", records or "", watched),
            ],
            _libraries(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
                (os.POSIX_SPAWN_DUP2, high, wire.SOCKET_FD),
            ],
            setsid=True,
            setsigmask=[],
        )
    except OSError as error:
        here.close()
        raise StartFailed("helper", error.errno or 0, sys.executable) from None
    finally:
        there.close()
        if high >= 0:
            os.close(high)
    here.setblocking(False)
    return here, pid


def _libraries() -> dict[str, str]:
    """Where the helper's Python finds its libraries: never in a folder that tools may write."""
    name = "LD_LIBRARY_PATH"
    given = {name: os.environ[name]} if name in os.environ else {}
    return child_environment(given, tool_roots)


def _end(link: socket.socket, pid: int, creator: int, group: str | None) -> None:
    """Close the helper's socket and collect it: it kills what is left and exits at once."""
    link.close()
    if os.getpid() != creator:
        return  # a forked copy of the host: the helper is not its child
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(_REAP_MS)
        finally:
            os.close(fd)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    if group is not None:
        cgroup.destroy(group)
