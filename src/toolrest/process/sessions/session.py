"""A command session: output since the last call, and terminal input."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from toolrest.process.child import Child
from toolrest.process.output.decode import Deltas, decode_piece, split_incomplete
from toolrest.process.output.head_tail import HeadTail, Piece
from toolrest.process.output_reader import ChildReader
from toolrest.process.sessions.input_wait import waits_for_input

LOOK_FIRST = 0.1
"""Silence after which a terminal program is checked for waiting for input."""

LOOK_MOST = 1.6
"""Longest time between two such checks; it doubles each time."""


class SessionEnd(Struct, frozen=True):
    """The end of a session, reported once, when its command and its output have ended."""

    session_id: int
    exit_code: int | None
    signal: int | None
    duration: float
    transcript: str


class CommandSession:
    """A command whose output is read while it runs and collected by calls."""

    def __init__(self, number: int, child: Child, argv: tuple[str, ...], call_id: str) -> None:
        self.id = number
        self.argv = argv
        self.call_id = call_id
        self.buffer = HeadTail()
        self.transcript = HeadTail()
        self.lock = asyncio.Lock()
        self.users = 0
        self.on_bytes: Callable[[bytes], object] | None = None
        self.watchers: list[Callable[[bytes], object]] = []
        """People who look on; calls get their output all the same."""
        self.on_end: Callable[[SessionEnd], None] | None = None
        self.running = ChildReader(child, self._add)
        self.running.on_settled = self._report_end
        self.last_used = self.running.started_at
        self._deltas: Deltas | None = None

    @property
    def exit_code(self) -> int | None:
        """The command's exit code, 128 + n after signal n, None while it runs."""
        ended = self.running.child.ended
        if ended is None:
            return None
        return 128 + ended.signal if ended.signal is not None else ended.exit_code

    @property
    def signal(self) -> int | None:
        """The signal that ended the command."""
        ended = self.running.child.ended
        return None if ended is None else ended.signal

    def listen(self, on_delta: Callable[[str], None] | None) -> None:
        """Set the callback for output as it arrives, for the length of one call."""
        self._deltas = None if on_delta is None else Deltas(on_delta)

    def _add(self, _index: int, data: bytes) -> None:
        self.buffer.add(data)
        self.transcript.add(data)
        if self._deltas is not None:
            self._deltas.add(data)
        if self.on_bytes is not None:
            self.on_bytes(data)
        for watcher in self.watchers:
            watcher(data)

    async def collect(self, deadline: float) -> bool:
        """Wait for the end, the deadline, or a prompt; True when the program waits for input."""
        running = self.running
        since = self._now()
        pause = LOOK_FIRST
        look = since + pause
        while not running.finished:
            now = self._now()
            if running.ended_at is None:
                if now >= deadline:
                    return self.waiting()
                if now >= look and now - max(running.last_output, since) >= LOOK_FIRST:
                    if self.waiting():
                        return True
                    pause = min(pause * 2, LOOK_MOST)
                    look = now + pause
                elif now >= look:
                    look = max(running.last_output, since) + LOOK_FIRST
                await running.wakeup.wait(min(deadline, look) - now)
            else:
                await running.until(deadline)
        return False

    def waiting(self) -> bool:
        """True when the program sleeps until input comes."""
        terminal = self.running.terminal
        if terminal is None or terminal.unsent or self.running.ended_at is not None:
            return False
        pids = self.running.child.descendants()
        return waits_for_input(pids, terminal.foreground(), terminal.device)

    def drain(self) -> Piece:
        """Take the output since the last drain; an incomplete character stays for the next one."""
        piece = self.buffer.drain()
        if self.running.finished:
            return piece
        last = piece.tail or piece.head
        whole, rest = split_incomplete(last)
        self.buffer.add(rest)
        if piece.tail:
            return Piece(piece.head, whole, piece.omitted)
        return Piece(whole, b"", piece.omitted)

    def _report_end(self) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            running = self.running
            ended_at = running.ended_at if running.ended_at is not None else self._now()
            on_end(
                SessionEnd(
                    self.id,
                    self.exit_code,
                    self.signal,
                    ended_at - running.started_at,
                    decode_piece(self.transcript.piece()),
                )
            )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
