"""The journal of a session, with which it survives a crash: one JSON line an item, in order.

The file is a rollout, `$TOOLREST_HOME/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, private
and locked while the session is open. A call's line is written before it starts; `commit` puts the
lines on the disk itself, which the session waits for before a call may change anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toolrest.errors import ConfigError, Fatal
from toolrest.items import JSONObject
from toolrest.private_files import private_file, private_folder, reason, write_all
from toolrest.wire.items.json_text import dumps

if TYPE_CHECKING:
    from toolrest.config import Settings
    from toolrest.gate.output.redact import Redactor

FOLDER = "sessions"
NAME = re.compile(r"rollout-(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)-([A-Za-z0-9_-]{1,64})\.jsonl")
"""The name of a session's file: when it began, and its id."""
EARLY_OUTPUT = "call_output"
"""The line of an output that came before its place in the conversation was free."""


def turn_context(settings: Settings, model: str, cwd: str, turn_id: str) -> JSONObject:
    """The line of a turn's settings."""
    return {
        "turn_id": turn_id,
        "cwd": cwd,
        "approval_policy": settings.approval_policy,
        "sandbox_policy": {"type": settings.sandbox_mode},
        "model": model,
        "effort": settings.model_reasoning_effort,
        "summary": settings.model_reasoning_summary or "auto",
    }


class HeldRollout:
    """The rollout of an earlier session, locked: read it only now. Another process is refused."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _unwritable(path, error) from error
        _lock(self._file, path)

    def take(self) -> int:
        """Its descriptor, which is the taker's from now on."""
        file, self._file = self._file, -1
        return file

    def close(self) -> None:
        """Let it go, unless it was taken."""
        if self._file >= 0:
            os.close(self.take())


class SessionJournal:
    """The writer of a session's rollout. Lines that could not be written wait for the next try.

    A line that cannot be written raises Fatal, so that the turn ends; the session goes on, and
    once there is room again nothing is missing from the file.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        self.path: str | None = None
        self._redactor = redactor
        self._file = -1
        self._size = 0
        self.ordinal = 0
        self._waiting: list[bytes] = []
        self._torn = False
        self._dirty = False

    # Opening

    def create(self, home: str, session_id: str, meta: Callable[[str], JSONObject]) -> None:
        """Start the rollout of a new session; `meta` makes its first line from the time."""
        now = datetime.now()
        stamp = now.strftime("%Y-%m-%dT%H-%M-%S")
        days = now.strftime("%Y"), now.strftime("%m"), now.strftime("%d")
        name = f"rollout-{stamp}-{session_id}.jsonl"
        where = os.path.join(home, FOLDER, *days, name)
        try:
            folder = private_folder(home, FOLDER, *days)
            try:
                file = private_file(folder, name, append=True)
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _unwritable(where, error) from error
        _lock(file, where)
        self.path, self._file = where, file
        self.write("session_meta", meta(_now()))

    def resume(self, held: HeldRollout, lines: int) -> None:
        """Go on with an earlier session's rollout, which has so many lines."""
        self.path, self._file, self.ordinal = held.path, held.take(), lines
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            # The last line was cut by a crash: close it, so that the next one is not lost with it.
            self._waiting.append(b"\n")

    # Writing

    def write(self, kind: str, payload: JSONObject) -> None:
        """Add one line; Fatal when it cannot be written."""
        self.write_text(kind, dumps(payload), payload)

    def write_text(self, kind: str, text: str, payload: JSONObject) -> None:
        """Add one line whose payload is already JSON text."""
        redactor = self._redactor
        if redactor is not None and redactor.active and redactor.redact(text) != text:
            text = dumps(redactor.redact_json(payload))
        head = f'{{"timestamp":"{_now()}","ordinal":{self.ordinal},"type":"{kind}","payload":'
        self.ordinal += 1
        self._waiting.append(f"{head}{text}}}\n".encode())
        if self._file < 0:
            raise Fatal(f"the session's journal {self.path or ''} is closed")
        self._flush()

    def _flush(self) -> None:
        data = b"".join(self._waiting)
        if not data:
            return
        try:
            if self._torn:
                os.ftruncate(self._file, self._size)
            self._torn = True
            write_all(self._file, data)
        except OSError as error:
            raise _unwritable(self.path or "", error) from error
        self._torn = False
        self._dirty = True
        self._size += len(data)
        self._waiting.clear()

    async def commit(self) -> None:
        """Return when every line is on the disk; Fatal when that fails."""
        self._flush()
        if self._dirty:
            self._dirty = False
            try:
                await asyncio.to_thread(os.fdatasync, self._file)
            except OSError as error:
                self._dirty = True
                raise _unwritable(self.path or "", error) from error

    def close(self) -> None:
        """Write the waiting lines if possible, and close the file. Twice does no harm."""
        if self._file < 0:
            return
        with contextlib.suppress(Fatal):
            self._flush()
        # A child that is being started has the file for a moment: its copy must not hold the lock.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)
        self._file = -1


class NoJournal(SessionJournal):
    """No journal, for ephemeral sessions."""

    def write_text(self, kind: str, text: str, payload: JSONObject) -> None:
        """Write nothing."""

    async def commit(self) -> None:
        """Return at once."""


def _lock(file: int, path: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise ConfigError(
            f"the session in {path} is open in another process",
            hints=("End that one, or make a copy with `toolrest sessions fork`.",),
        ) from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _unwritable(path: str, error: OSError) -> Fatal:
    return Fatal(
        f"the session's journal {path} cannot be written: {reason(error)}; make room there, or "
        "run without one (--ephemeral)"
    )
