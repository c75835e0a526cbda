"""Run one command to its end or its time limit, and report how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct, field

from toolrest.process.child import StartFailed
from toolrest.process.command import Command
from toolrest.process.output.decode import Deltas, binary_note, decode_piece
from toolrest.process.output.head_tail import LIMIT, HeadTail, Piece
from toolrest.process.output_reader import ChildReader
from toolrest.process.owner import Owner

State: TypeAlias = Literal["exited", "signaled", "timed_out", "still_running", "failed_to_start"]
Stream: TypeAlias = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")

TIMEOUT_CODE = 124
DEFAULT_TIME_LIMIT = 10.0
GRACE = 0.1
"""Seconds between SIGTERM and SIGKILL: enough for git to remove its lock."""


class RunResult(Struct, frozen=True):
    """The result of a command.

    `exit_code` is the command's own when it exited, 128 + n when signal n ended it, 124 after a
    timeout, and None while it runs or when it never started; `error` is then the reason.
    `background_pids` are processes of its tree that still ran when the result was made: they
    live until the session ends. `survivors` could not be killed.
    """

    state: State
    exit_code: int | None = None
    signal: int | None = None
    stdout_piece: Piece = field(default_factory=Piece)
    stderr_piece: Piece = field(default_factory=Piece)
    duration: float = 0.0
    pid: int = 0
    background_pids: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    error: str | None = None

    @property
    def timed_out(self) -> bool:
        """True when the time limit ended the command."""
        return self.state == "timed_out"

    @property
    def stdout(self) -> str:
        """Standard output as text."""
        return decode_piece(self.stdout_piece)

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return decode_piece(self.stderr_piece)

    @property
    def binary(self) -> str | None:
        """A note about standard output that is binary; None for text."""
        return binary_note(self.stdout_piece)

    @property
    def aggregated(self) -> str:
        """Standard output, then standard error, within one limit."""
        out, err = aggregate(self.stdout_piece, self.stderr_piece)
        return decode_piece(out) + decode_piece(err)


def aggregate(out: Piece, err: Piece, limit: int = LIMIT) -> tuple[Piece, Piece]:
    """Both streams within one limit: a third for `out`; what one does not use, the other gets.

    Excess bytes are cut from the middle of a stream, and counted.
    """
    if out.kept + err.kept <= limit:
        return out, err
    first = min(out.kept, limit // 3)
    second = min(err.kept, limit - first)
    first = min(out.kept, limit - second)
    return out.shrunk(first), err.shrunk(second)


async def run(
    owner: Owner,
    command: Command,
    *,
    time_limit: float | None = DEFAULT_TIME_LIMIT,
    on_timeout: Literal["kill", "background"] = "kill",
    on_delta: Callable[[Stream, str], None] | None = None,
    on_bytes: Callable[[Stream, bytes], None] | None = None,
    grace: float = GRACE,
    limit: int = LIMIT,
) -> RunResult:
    """Run a command; returns when it has ended, or its whole tree was killed at the time limit.

    With `on_timeout="background"` the tree lives on until the session ends and its later output
    is dropped. Cancelling this coroutine kills the tree first and is raised afterwards.
    `on_delta` gets text as it arrives, at most 10,000 times a stream; `on_bytes` gets all bytes.
    """
    buffers = (HeadTail(limit), HeadTail(limit))
    add = _collector(buffers, on_delta, on_bytes)
    began = asyncio.get_running_loop().time()
    try:
        child = await owner.launch(command)
    except StartFailed as failure:
        return RunResult("failed_to_start", error=str(failure))
    running = ChildReader(child, add)
    deadline = None if time_limit is None else began + max(time_limit, 0.0)
    survivors: tuple[int, ...] = ()
    try:
        in_time = await running.until(deadline)
        if not in_time and on_timeout == "kill":
            survivors = await running.kill(grace)
        elif not in_time:
            with suppress(StartFailed):  # the result carries it
                await running.child.started()  # the result needs its pid
    except BaseException:
        await running.kill(grace)
        running.close()
        raise
    state: State | None = None
    if not in_time:
        state = "timed_out" if on_timeout == "kill" else "still_running"
    result = _result(running, state, buffers, began, survivors)
    running.leave()
    return result


def _collector(
    buffers: tuple[HeadTail, HeadTail],
    on_delta: Callable[[Stream, str], None] | None,
    on_bytes: Callable[[Stream, bytes], None] | None,
) -> Callable[[int, bytes], None]:
    def emitter(stream: Stream) -> Callable[[str], None]:
        return lambda text: on_delta(stream, text) if on_delta is not None else None

    deltas = [] if on_delta is None else [Deltas(emitter(stream)) for stream in STREAMS]

    def add(index: int, data: bytes) -> None:
        buffers[index].add(data)
        if deltas:
            deltas[index].add(data)
        if on_bytes is not None:
            on_bytes(STREAMS[index], data)

    return add


def _result(
    running: ChildReader,
    state: State | None,
    buffers: tuple[HeadTail, HeadTail],
    began: float,
    survivors: tuple[int, ...],
) -> RunResult:
    child = running.child
    ended = child.ended
    code, number = (None, None) if ended is None else (ended.exit_code, ended.signal)
    error = None
    if child.failure is not None:
        state, code, error = "failed_to_start", None, str(child.failure)
    elif state is None:
        state = "exited" if number is None else "signaled"
    if state == "signaled" and number is not None:
        code = 128 + number
    elif state == "timed_out":
        code = TIMEOUT_CODE
    if ended is not None and ended.lost and error is None:
        error = "the process that kept this command was killed, and the command with it"
    left = child.descendants() if state in ("still_running", "exited", "signaled") else ()
    return RunResult(
        state,
        code,
        number,
        buffers[0].piece(),
        buffers[1].piece(),
        asyncio.get_running_loop().time() - began,
        child.pid,
        left,
        survivors,
        error,
    )
