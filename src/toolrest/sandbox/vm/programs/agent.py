"""The agent: the first process of the machine. It starts commands and owns what they start.

It runs on the Python that Toolrest itself runs on, from the shared view, which always shows that
Python and keeps it from being written. Commands are in a control group each, which is killed when
the command ends or its client is gone; they are confined further by the bubblewrap that the host
put into their argument list, and never see the agent, its port or another command.

argv: a JSON object: `proxy`, the path of the socket to make for the network proxy or null, and
`limits`, files of a control group and their values, for all commands together.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import struct
import termios
import time
from typing import Any

from . import frames
from .child import become
from .connections import Listener, ProxyConnection, Source

PORT = 3
"""Descriptor of the serial port, open since before the root file system was there."""
_GROUPS = "/sys/fs/cgroup"
_COMMANDS = f"{_GROUPS}/commands"
_CHUNK = 32_768
_GONE_TRIES = 200
_ROUNDS = 3


class GuestAgent:
    """The program that runs commands in the machine, and speaks with the host."""

    def __init__(self, port: int, proxy: str | None) -> None:
        self.port = port
        self.selector = selectors.DefaultSelector()
        self.runs: dict[int, Run] = {}
        self.pids: dict[int, Run] = {}
        self.connections: dict[int, ProxyConnection] = {}
        self._frames = frames.Reader(frames.FROM_HOST)
        self._watched: dict[int, tuple[Source, int]] = {}
        self._news, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.watch(self, port, selectors.EVENT_READ)
        self.watch(self, self._news, selectors.EVENT_READ)
        if proxy is not None:
            Listener(self, proxy)

    def send(self, kind: int, stream: int, payload: bytes = b"") -> None:
        """Send a frame; the host always reads."""
        self._write(frames.pack(kind, stream, payload))

    def done_with(self, stream: int, count: int) -> None:
        """Let the host send more of a stream."""
        self._write(frames.credit(stream, count))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.port, rest) :]

    def watch(self, source: Source, fd: int, events: int) -> None:
        """Wait for exactly these events of a descriptor from now on; 0 for none."""
        known = self._watched.get(fd)
        if known is not None and (events == 0 or known != (source, events)):
            self.selector.unregister(fd)
            del self._watched[fd]
            known = None
        if events and known is None:
            self.selector.register(fd, events, source)
            self._watched[fd] = (source, events)

    def serve(self) -> None:
        """Serve until the host is gone."""
        with open("/proc/uptime", encoding="ascii") as file:
            uptime = float(file.read().split()[0])
        self.send(frames.READY, 0, json.dumps({"uptime": uptime}).encode())
        while self.port >= 0:
            self.round()

    def round(self) -> None:
        """Wait for events, and act on each unless one before it has closed what it belongs to."""
        for key, _ in self.selector.select():
            source, _ = self._watched.get(key.fd, (None, 0))
            if source is not None and source is key.data:
                source.ready(key.fd)

    def ready(self, fd: int) -> None:
        """Frames from the host, or the end of a process."""
        if fd == self._news:
            os.read(fd, 4096)
            self._reap()
            return
        data = os.read(fd, frames.MOST)
        if not data:
            self.port = -1
        for kind, stream, payload in self._frames.feed(data):
            self._act(kind, stream, payload)

    def _act(self, kind: int, stream: int, payload: bytes) -> None:
        if stream >= frames.CONNECTIONS:
            connection = self.connections.get(stream)
            if connection is not None:
                connection.act(kind, payload)
        elif kind == frames.START:
            self._start(stream, payload)
        elif stream in self.runs:
            self.runs[stream].act(kind, payload)

    def _start(self, stream: int, payload: bytes) -> None:
        if not self.runs:
            _forget_names()
        try:
            run = Run(self, stream, json.loads(payload[1:]), merged=bool(payload[0]))
        except OSError as error:
            self.send(frames.ERR, stream, f"toolrest: {error}\n".encode())
            self.send(frames.EXIT, stream, bytes([126]))
            return
        self.runs[stream] = self.pids[run.pid] = run

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = self.pids.pop(pid, None)
            if run is not None:
                code = os.waitstatus_to_exitcode(status)
                run.ended(code if code >= 0 else 128 - code)


class Run:
    """One command.

    `argv` (base64), `cwd`, `env`, `tty` (rows and columns, or null), `stdin`, `files` (descriptor
    and base64), `limits`, `uid` and `gid` are what the host says of it.
    """

    def __init__(
        self, agent: GuestAgent, stream: int, spec: dict[str, Any], *, merged: bool
    ) -> None:
        self._agent = agent
        self._stream = stream
        self._credit = frames.WINDOW
        self._pending = bytearray()
        self._closing = False
        self._code: int | None = None
        self._outputs: dict[int, int] = {}
        self._input: int | None = None
        self._terminal = spec["tty"] is not None
        self._group = f"{_COMMANDS}/{stream}"
        os.mkdir(self._group)
        given = self._terminal_ends(*spec["tty"]) if self._terminal else self._pipes(spec, merged)
        self.pid = os.fork()
        if self.pid == 0:
            become(spec, given, f"{self._group}/cgroup.procs", self._terminal)
        for fd in set(given):
            os.close(fd)
        if self._input is not None:
            os.set_blocking(self._input, False)
        self._watch_outputs()

    def _terminal_ends(self, rows: int, cols: int) -> tuple[int, int, int]:
        master, slave = os.openpty()
        self._outputs = {master: frames.OUT}
        self._input = os.dup(master)
        self._set_size(rows, cols)
        return slave, slave, slave

    def _pipes(self, spec: dict[str, Any], merged: bool) -> tuple[int, int, int]:
        if spec["stdin"]:
            given, self._input = os.pipe()
        else:
            given = os.open(os.devnull, os.O_RDONLY)
        reading, out = os.pipe()
        self._outputs = {reading: frames.OUT}
        if merged:
            return given, out, out
        reading, err = os.pipe()
        self._outputs[reading] = frames.ERR
        return given, out, err

    def _set_size(self, rows: int, cols: int) -> None:
        if self._terminal and self._input is not None:
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _watch_outputs(self) -> None:
        for fd in self._outputs:
            self._agent.watch(self, fd, selectors.EVENT_READ if self._credit > 0 else 0)

    def act(self, kind: int, payload: bytes) -> None:
        """What the host asks of a running command."""
        if kind == frames.INPUT:
            self._pending += payload
            self._feed()
        elif kind == frames.END:
            self._closing = True
            self._feed()
        elif kind == frames.CREDIT:
            self._credit += frames.number(payload)
            self._watch_outputs()
        elif kind == frames.RESIZE:
            self._set_size(*frames.size(payload))
        elif kind == frames.SIGNAL:
            self._signal(payload[0])
        elif kind == frames.KILL:
            self._kill()

    def ready(self, fd: int) -> None:
        """Its output, or room for its input."""
        if fd in self._outputs:
            self._read(fd)
        else:
            self._feed()

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, min(self._credit, _CHUNK))
        except OSError:  # a terminal that no process has open any more
            data = b""
        if data:
            self._credit -= len(data)
            self._agent.send(self._outputs[fd], self._stream, data)
            if self._credit <= 0:
                self._watch_outputs()
            return
        self._agent.watch(self, fd, 0)
        del self._outputs[fd]
        os.close(fd)
        self._finish()

    def _feed(self) -> None:
        """Write what it takes of its input, and wait for more room if there is more."""
        count = 0
        if self._input is not None and self._pending:
            try:
                count = os.write(self._input, self._pending[:_CHUNK])
            except BlockingIOError:
                count = 0
            except OSError:
                count = len(self._pending)  # it reads no more
            del self._pending[:count]
        elif self._pending:
            count = len(self._pending)
            self._pending.clear()
        if count:
            self._agent.done_with(self._stream, count)
        if self._input is None:
            return
        self._agent.watch(self, self._input, selectors.EVENT_WRITE if self._pending else 0)
        if self._closing and not self._pending and not self._terminal:
            self._close_input()

    def _close_input(self) -> None:
        if self._input is not None:
            self._agent.watch(self, self._input, 0)
            os.close(self._input)
            self._input = None

    def _signal(self, number: int) -> None:
        """Send a signal to what the launcher started: its own death would be the end of all."""
        with open(f"{self._group}/cgroup.procs", encoding="ascii") as file:
            for pid in map(int, file.read().split()):
                if pid != self.pid:
                    _send(pid, number)

    def _kill(self) -> None:
        with open(f"{self._group}/cgroup.kill", "w", encoding="ascii") as file:
            file.write("1")

    def ended(self, code: int) -> None:
        """Its first process has ended, and so does all that it started."""
        self._code = code
        self._kill()
        self._finish()

    def _finish(self) -> None:
        if self._code is None or self._outputs:
            return
        self._close_input()
        for _ in range(_GONE_TRIES):  # killed, but perhaps not yet gone
            try:
                os.rmdir(self._group)
                break
            except OSError:
                time.sleep(0.002)
        os.sync()  # what it wrote through a mapping is still here
        del self._agent.runs[self._stream]
        self._agent.send(frames.EXIT, self._stream, bytes([self._code & 255]))


def _forget_names() -> None:
    """Have every file of the shared view looked up again, as the host may have changed it.

    Contents that are cached stay, as long as the host gives the file the same version. A name that
    was used lately survives the first round.
    """
    fd = os.open("/proc/sys/vm/drop_caches", os.O_WRONLY)
    for _ in range(_ROUNDS):
        os.write(fd, b"2")
    os.close(fd)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def _limit(limits: dict[str, str]) -> None:
    """The control group that all commands are in, with its limits."""
    if limits:
        names = {name.partition(".")[0] for name in limits}
        with open(f"{_GROUPS}/cgroup.subtree_control", "w", encoding="ascii") as file:
            file.write(" ".join(f"+{name}" for name in names))
    os.mkdir(_COMMANDS)
    for name, value in limits.items():
        with open(f"{_COMMANDS}/{name}", "w", encoding="ascii") as file:
            file.write(value)


def main(config: str) -> int:
    """Serve; the machine ends with this."""
    wish = json.loads(config)
    _limit(wish["limits"])
    GuestAgent(PORT, wish["proxy"]).serve()
    return 0
