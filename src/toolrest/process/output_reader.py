"""Reader of a child's output: waits for the exit, and for the end of the output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolrest.process.child import Child
from toolrest.process.output.streams import PseudoTerminal, StreamReader
from toolrest.process.wakeup import uncancelled

QUIET = 0.05
"""Silence after which a dead command's background processes have nothing to add."""

CHATTER = 0.25
"""Longest time that output of background processes can delay the result."""

STUCK = 2.0
"""Longest wait for a pipe that stays open although no process of the tree is left, and for the
last process of a tree that dies with its command."""


class ChildReader:
    """Reads a child's outputs and knows when it is finished: exit, and the end of its output."""

    def __init__(self, child: Child, on_bytes: Callable[[int, bytes], None]) -> None:
        self.child = child
        self.wakeup = child.wakeup
        self.started_at = self._now()
        self.last_output = self.started_at
        self.ended_at: float | None = None
        self._on_bytes = on_bytes
        typed = child.device is not None
        self.sources = [
            StreamReader(fd, self._reader(index), typed=typed)
            for index, fd in enumerate(child.outputs)
        ]
        self.terminal: PseudoTerminal | None = None
        if child.device is not None:
            self.terminal = PseudoTerminal(child.outputs[0], child.device)
        self.on_settled: Callable[[], None] = _nothing
        self._limit: asyncio.TimerHandle | None = None
        for source in self.sources:
            source.on_end = self._note_eof
        child.on_change = self._note_change
        self._note_change()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _reader(self, index: int) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            self.last_output = self._now()
            self._on_bytes(index, data)

        return read

    def _note_eof(self) -> None:
        if self.terminal is not None:
            self.terminal.close()
        if self.child.ended is not None:  # else wait for the command's own end
            self.wakeup.notify()
            self._note_change()

    def _note_change(self) -> None:
        if self.child.ended is None:
            return
        loop = asyncio.get_running_loop()
        if self.ended_at is None:
            self.ended_at = loop.time()
        if self._is_over():
            self._settle()
        elif self.child.is_over and self._limit is None:
            self._limit = loop.call_later(CHATTER, self._settle)

    def _is_over(self) -> bool:
        return self.child.is_over and all(source.ended for source in self.sources)

    def _settle(self) -> None:
        settled, self.on_settled = self.on_settled, _nothing
        settled()

    @property
    def finished(self) -> bool:
        """True when the command has ended and no more output is expected."""
        return self.ended_at is not None and self._rest() <= 0

    def _rest(self) -> float:
        """Seconds that are still worth waiting for output after the command's end."""
        if self.ended_at is None or self._is_over():
            return 0.0
        now = self._now()
        if self.child.ended is not None and not self.child.ended.background:
            return self.ended_at + STUCK - now
        quiet = max(self.last_output, self.ended_at) + QUIET
        return min(quiet, self.ended_at + CHATTER) - now

    async def until(self, deadline: float | None) -> bool:
        """Wait until finished or the deadline on the loop's clock; True when finished.

        A command that ended in time may take a moment longer, for the end of its output.
        """
        while not self.finished:
            if self.ended_at is not None:
                await self.wakeup.wait(self._rest())
                continue
            remaining = None if deadline is None else deadline - self._now()
            if remaining is not None and remaining <= 0:
                return False
            await self.wakeup.wait(remaining)
        return True

    async def kill(self, grace: float) -> tuple[int, ...]:
        """End the tree, read its last output, and return pids that could not be killed.

        Does not give in to cancellation before that is done.
        """
        survivors: list[int] = []

        async def work() -> None:
            survivors.extend(await self.child.kill(grace))
            if not survivors:
                await self.until(None)

        await uncancelled(asyncio.ensure_future(work()))
        return tuple(survivors)

    def leave(self) -> None:
        """Read on and drop the output, so that no pipe of a background process fills or breaks."""
        self._on_bytes = _drop
        if self.child.gone:
            self.close()
        else:
            forget = self.child.on_gone

            def gone(child: Child) -> None:
                forget(child)
                self.close()

            self.child.on_gone = gone

    def close(self) -> None:
        """Close the descriptors; nothing more will be read."""
        if self.terminal is not None:
            self.terminal.close()
        for source in self.sources:
            source.close()


def _nothing() -> None:
    """Default of callbacks that are not set."""


def _drop(_index: int, _data: bytes) -> None:
    """Drop output that is not needed."""
