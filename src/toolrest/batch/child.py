"""One `toolrest exec --json` as a child that dies with us, its lines and the end of its stderr."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from toolrest.batch.failures import oom_kills
from toolrest.batch.tasks.processes import send_signal

_TAIL = 4096
_LONGEST_LINE = 64 << 20
_PIECE = 1 << 16
_PATIENCE = 10.0
"""Seconds that a child gets to end by itself after SIGTERM."""

OnLine = Callable[[bytes], None]


class ChildEnd(Struct):
    """The end of a child: its exit code (negative: by a signal), and what it said."""

    exit_code: int
    summary: dict[str, Any] = field(default_factory=dict)
    """Fields for a result, of the JSON lines."""
    stderr: str = ""
    oom: bool = False


def child_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for a child that is to die with this process."""
    return {**environ, "TOOLREST_PARENT": str(os.getpid())}


async def run_child(
    arguments: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin: bytes = b"",
    on_line: OnLine | None = None,
    started: Callable[[asyncio.subprocess.Process], None] | None = None,
) -> ChildEnd:
    """Run `toolrest` with these arguments. Cancelling ends it.

    `on_line` gets the lines of an `exec`, and of other commands their output in pieces.

    Without -P and in the workspace, Python would take a `toolrest.py` there for us. It is started
    from this thread: a parent-death signal comes when the thread ends that started the child.
    """
    before = oom_kills()
    has_lines = arguments[0] == "exec"  # what a check prints is no event
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "toolrest", *arguments,
            cwd=cwd,
            env=child_env(env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE if has_lines else _PIECE,
        )
    )  # fmt: skip
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError, ValueError):  # it is there all the same, and is ended like others
            await _end(await starting)
        raise
    if started is not None:
        started(process)
    summary = Summary()
    output = _lines(process, summary.take, on_line) if has_lines else _pieces(process, on_line)
    tail = bytearray()
    try:
        await asyncio.gather(_feed(process, stdin), output, _errors(process, tail))
        code = await process.wait()
    except BaseException:
        await _end(process)
        raise
    text = tail.decode("utf-8", "replace")
    return ChildEnd(code, summary.fields(), text, oom_kills() > before)


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None  # noqa: S101
    with suppress(OSError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _lines(process: asyncio.subprocess.Process, *takers: OnLine | None) -> None:
    assert process.stdout is not None  # noqa: S101
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # too long a line, of which the reader keeps nothing so far
            continue
        if not line:
            return
        for take in takers:
            if take is not None:
                take(line)


async def _pieces(process: asyncio.subprocess.Process, take: OnLine | None) -> None:
    """Read what may be one endless line, a little at a time."""
    assert process.stdout is not None  # noqa: S101
    while data := await process.stdout.read(_PIECE):
        if take is not None:
            take(data)


async def _errors(process: asyncio.subprocess.Process, tail: bytearray) -> None:
    assert process.stderr is not None  # noqa: S101
    while data := await process.stderr.read(_TAIL):
        tail += data
        del tail[:-_TAIL]


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a child: the signal lets it record that it was stopped; if that takes long, for good."""
    if process.returncode is not None:
        return
    send_signal(process, signal.SIGTERM)
    drained = asyncio.gather(*(_drain(stream) for stream in (process.stdout, process.stderr)))
    try:
        async with asyncio.timeout(_PATIENCE):
            await process.wait()
    except TimeoutError:
        send_signal(process, signal.SIGKILL)
        await process.wait()
    finally:
        drained.cancel()
        with suppress(asyncio.CancelledError):
            await drained


async def _drain(stream: asyncio.StreamReader | None) -> None:
    """Read what a child still writes, so that it does not wait for a reader."""
    while stream is not None and await stream.read(_LONGEST_LINE):
        pass


class Summary:
    """The fields of a result, gathered from the JSON lines of an `exec`."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}
        self._error: str | None = None

    def take(self, line: bytes) -> None:
        """Take one line; what is no event is left out. It never raises."""
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        kind, item, error = event.get("type"), event.get("item"), event.get("error", event)
        if kind == "thread.started":
            self._found["thread_id"] = event.get("thread_id")
        elif kind == "item.completed" and isinstance(item, dict):
            if item.get("type") == "agent_message":
                self._found["text"] = item.get("text")
        elif kind in ("error", "turn.failed"):
            message = error.get("message") if isinstance(error, dict) else error
            self._error = None if message is None else str(message)
        elif kind == "result":
            names = ("status", "reason", "usage", "denials")
            self._found |= {name: event.get(name) for name in names}

    def fields(self) -> dict[str, Any]:
        """What there is: thread_id, text, status, reason, usage, denials, error."""
        if self._error is None or self._found.get("status") == "completed":
            return self._found
        return self._found | {"error": self._error}
