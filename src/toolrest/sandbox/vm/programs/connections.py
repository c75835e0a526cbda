"""The connections of commands to the network proxy of the host, one stream each.

The machine has no network device: a command's forwarder connects to a socket of the agent's.
"""

from __future__ import annotations

import os
import selectors
import socket
from typing import Protocol

from . import frames

_MOST = 128
_CHUNK = 32_768


class FrameSender(Protocol):
    """The part of the agent that connections use: it sends their frames."""

    connections: dict[int, ProxyConnection]

    def send(self, kind: int, stream: int, payload: bytes = b"") -> None:
        """Send a frame."""
        ...

    def done_with(self, stream: int, count: int) -> None:
        """Let the host send more of a stream."""
        ...

    def watch(self, source: Source, fd: int, events: int) -> None:
        """Wait for these events of a descriptor."""
        ...


class Source(Protocol):
    """Something that the agent waits for."""

    def ready(self, fd: int) -> None:
        """Take what can be read or written without waiting."""
        ...


class Listener:
    """The socket at which commands find the network proxy of the host."""

    def __init__(self, agent: FrameSender, path: str) -> None:
        self._agent = agent
        self._count = 0
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0)  # whatever user the commands are
        self._server.bind(path)
        os.umask(before)
        self._server.listen(_MOST)
        agent.watch(self, self._server.fileno(), selectors.EVENT_READ)

    def ready(self, fd: int) -> None:
        """One more connection."""
        taken, _ = self._server.accept()
        if len(self._agent.connections) >= _MOST:
            taken.close()
            return
        self._count += 1
        ProxyConnection(self._agent, frames.CONNECTIONS + self._count, taken)


class ProxyConnection:
    """One connection of a command to the network proxy."""

    def __init__(self, agent: FrameSender, stream: int, taken: socket.socket) -> None:
        self._agent = agent
        self._stream = stream
        self._socket = taken
        self._credit = frames.WINDOW
        self._pending = bytearray()
        self._read_all = self._written_all = False
        taken.setblocking(False)
        agent.connections[stream] = self
        agent.send(frames.OPEN, stream)
        self._watch()

    def _watch(self) -> None:
        events = selectors.EVENT_WRITE if self._pending else 0
        if self._credit > 0 and not self._read_all:
            events |= selectors.EVENT_READ
        self._agent.watch(self, self._socket.fileno(), events)

    def act(self, kind: int, payload: bytes) -> None:
        """What the host's proxy answers."""
        if kind == frames.INPUT:
            self._pending += payload
        elif kind == frames.END:
            self._written_all = True
        elif kind == frames.CREDIT:
            self._credit += frames.number(payload)
        self._write()
        self._settle()

    def ready(self, fd: int) -> None:
        """Bytes of the command, or room for the proxy's."""
        self._write()
        if self._credit > 0 and not self._read_all:
            self._read()
        self._settle()

    def _read(self) -> None:
        try:
            data = self._socket.recv(min(self._credit, _CHUNK))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._credit -= len(data)
        if data:
            self._agent.send(frames.OUT, self._stream, data)
        else:
            self._read_all = True
            self._agent.send(frames.CLOSED, self._stream)

    def _write(self) -> None:
        if not self._pending:
            return
        try:
            count = self._socket.send(self._pending[:_CHUNK])
        except BlockingIOError:
            return
        except OSError:
            count = len(self._pending)
        del self._pending[:count]
        self._agent.done_with(self._stream, count)

    def _settle(self) -> None:
        if self._written_all and not self._pending:
            # The proxy has closed its side: so that a command which only reads sees the end.
            self._agent.watch(self, self._socket.fileno(), 0)
            self._socket.close()
            del self._agent.connections[self._stream]
            if not self._read_all:
                self._agent.send(frames.CLOSED, self._stream)
            return
        self._watch()
