"""The audit log: decisions and results, written where no tool can change them.

The log is a listener: it turns events, whose texts are already redacted, into lines of a hash
chain. One session writes one file and its head file, and nothing else writes to either.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from threading import Lock
from typing import Any

from toolrest.answer import Answer
from toolrest.errors import AuditError, ConfigError
from toolrest.events import (
    Event,
    FileChange,
    FilesChanged,
    HookRan,
    PutBack,
    ToolCallDecision,
    ToolCallEnd,
)
from toolrest.gate.audit.chain import GENESIS, HEAD_SUFFIX, end_of_log, head_record, seal
from toolrest.gate.output.truncate import Limit, encoded, truncate
from toolrest.gate.threads import start_in_thread
from toolrest.items import JSONObject
from toolrest.policy.paths.names import inside
from toolrest.private_files import own_file, private_file, private_folder, reason, write_all

_LONGEST = 8192
_MAX_KEYS = 256
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_SAME_NAME = 1000
_MOST_WAITING = 64
_SYNC_DELAY = 0.05


class AuditLog:
    """The audit log of one session, in `folder`; the file is made with the first line.

    With `file` it is the file of that name there, which all sessions share: their lines are one
    chain. Otherwise each session has a file of its own.

    A folder inside a writable root is refused, except under `home` (`$TOOLREST_HOME`), which
    the path policy keeps from every tool. `facts` go into the first line. With `warn` a line that
    cannot be written does not stop its call; `warn` gets the reason, once.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        session_id: str,
        *,
        file: str = "",
        home: str | os.PathLike[str] | None = None,
        writable_roots: Iterable[str | os.PathLike[str]] = (),
        facts: Mapping[str, Any] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._folder = _absolute(folder)
        self._home = None if home is None else _absolute(home)
        self._session = session_id
        self._shared = file
        self._stem = _UNSAFE.sub("_", session_id)[:100].lstrip(".") or "session"
        self._facts = dict(facts or {})
        self._warn = warn
        self._warned = False
        self._lock, self._disk = Lock(), Lock()
        self._log = self._head = -1
        self._count = 0
        self._last = GENESIS
        self._name_on_disk = False
        self._broken = ""
        self._size = 0
        self._waiting: list[JSONObject] = []
        self._syncing = self._sync_again = False
        self._timed_by: asyncio.AbstractEventLoop | None = None
        """The loop whose timer starts the next sync; a closed loop's timer is lost."""
        self._ended = False
        self.path: str | None = None
        _refuse_inside(os.path.join(self._folder, file), self._home, writable_roots)

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> str:
        """Make the file now and return its path; otherwise the first line does."""
        with self._lock:
            self._ensure_open()
        return self.path or ""

    def on_event(self, event: Event) -> None:
        """Write a line for a decision, a result or a hook; other events are not audited.

        The line then survives the death of this process; `sync` makes it survive the machine's.
        An allowed call that only reads is written together with its result: half the writing, and
        a read without a result needs no line. AuditError means that the line could not be
        written, and that the call must not start; with `warn` it is not raised.
        """
        record = _RECORDS.get(type(event))
        if record is None:
            return
        wait = (
            type(event) is ToolCallDecision and event.verdict == Answer.ALLOW and not event.mutating
        )
        try:
            self._append(record(event), wait=wait)
        except AuditError as error:
            if self._warn is None:
                raise
            if not self._warned:
                self._warned = True
                self._warn(f"{error}; calls run without a record")

    def sync(self) -> None:
        """Put every line on disk. It may take milliseconds: call it off the event loop."""
        with self._disk:
            with self._lock:
                if self._log < 0:
                    return
                self._write()
                log = self._log
            self._to_disk(log)  # without the lock: writing a line must not wait for the disk

    def sync_soon(self) -> None:
        """Put every line on disk in a moment, in a thread; syncs that would overlap are one.

        Waiting for the disk would cost each command more than starting it does, and a disk that is
        busy slows the command down: most have ended when this begins. The line is with the kernel
        already, so only the machine's own death within a twentieth of a second can lose it. A disk
        that fails stops the next call.
        """
        if self._syncing and not (self._timed_by is not None and self._timed_by.is_closed()):
            self._sync_again = True
            return
        self._syncing = True
        loop = self._timed_by = asyncio.get_running_loop()
        loop.call_later(_SYNC_DELAY, start_in_thread, self._sync_quietly)

    def _sync_quietly(self) -> None:
        again = True
        while again:
            self._sync_again = False
            with contextlib.suppress(AuditError):  # `_broken` has it for the next call
                self.sync()
            again = self._sync_again
        self._syncing = False

    def close(self) -> None:
        """Write the last line and close the files; may be called twice."""
        if self._log >= 0 and not self._ended:
            with contextlib.suppress(AuditError):  # without it the log says that it broke off
                self._append({"type": "session_end", "time": time.time()})
        self._ended = True
        if self._syncing:  # the loop may end before the moment has come
            with contextlib.suppress(AuditError):
                self.sync()
        with self._disk:
            log, head, self._log, self._head = self._log, self._head, -1, -1
            for descriptor in (log, head):
                if descriptor >= 0:
                    os.close(descriptor)

    def _append(self, record: JSONObject, *, wait: bool = False) -> None:
        with self._lock:
            self._ensure_open()
            if self._shared:
                record["session"] = self._session
            self._waiting.append(record)
            if not wait or self._broken or len(self._waiting) >= _MOST_WAITING:
                self._write()

    def _write(self) -> None:
        """Write every record that waits, in order, at once."""
        if not self._waiting:
            return
        try:
            if self._shared:
                fcntl.flock(self._head, fcntl.LOCK_EX)
                self._count, self._last, self._size = end_of_log(self._log, self._head)
            self._write_chained()
        except OSError as error:
            # The error goes to the caller; records that failed are not kept for later.
            raise self._failed(error) from error
        finally:
            self._waiting.clear()
            if self._shared:
                fcntl.flock(self._head, fcntl.LOCK_UN)

    def _write_chained(self) -> None:
        count, last, lines = self._count, self._last, b""
        for record in self._waiting:
            count += 1
            line, last = seal(count, last, record)
            lines += line
        self._repair()
        write_all(self._log, lines)
        # The lines first: a head that is behind means a crash, one ahead a cut log.
        os.pwrite(self._head, head_record(count, last), 0)
        self._size += len(lines)
        self._count, self._last = count, last

    def _repair(self) -> None:
        """Cut off a line that was torn by a failed write, so that the chain can go on."""
        if self._broken:
            os.ftruncate(self._log, self._size)
            self._broken = ""

    def _to_disk(self, log: int) -> None:
        try:
            os.fsync(log)
            if not self._name_on_disk:
                folder = private_folder(self._folder)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
                self._name_on_disk = True
        except OSError as error:
            raise self._failed(error) from error

    def _ensure_open(self) -> None:
        if self._ended:
            raise AuditError(self._broken or f"the audit log {self.path} is closed")
        if self._log >= 0:
            return
        try:
            self._create()
        except OSError as error:
            raise self._failed(error) from error
        facts = {"session": self._session, "pid": os.getpid(), **self._facts}
        self._waiting.insert(0, {"type": "session_start", "time": time.time(), **facts})
        self._write()

    def _create(self) -> None:
        # Only a folder under our own home gets private rights; a configured one stays as it is.
        parent, name = os.path.split(self._folder)
        ours = self._home is not None and inside(self._folder, self._home)
        folder = private_folder(parent, name) if ours else private_folder(self._folder)
        try:
            if self._shared:
                name, self._log = self._shared, own_file(folder, self._shared, append=True)
                self._head = own_file(folder, name + HEAD_SUFFIX)
            else:
                name, self._log = self._new_file(folder)
                fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `toolrest gc` leaves it
                self._head = private_file(folder, name + HEAD_SUFFIX)
            self.path = os.path.join(self._folder, name)
        finally:
            os.close(folder)

    def _new_file(self, folder: int) -> tuple[str, int]:
        for number in range(1, _MAX_SAME_NAME):
            name = f"{self._stem}{f'.{number}' if number > 1 else ''}.jsonl"
            try:
                return name, private_file(folder, name, append=True)
            except FileExistsError:
                continue
        raise FileExistsError(
            errno.EEXIST, f"{_MAX_SAME_NAME} logs of this session exist", self._stem
        )

    def _failed(self, error: OSError) -> AuditError:
        where = self.path or os.path.join(self._folder, self._shared or self._stem + ".jsonl")
        self._broken = (
            f"cannot write the audit log {where}: {reason(error)}; make room, or name another "
            "folder in tool_security.audit_log_path"
        )
        return AuditError(self._broken)


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.path.expanduser(os.fspath(path)))


def _refuse_inside(folder: str, home: str | None, roots: Iterable[str | os.PathLike[str]]) -> None:
    real = os.path.realpath(folder)
    if home is not None and inside(real, os.path.realpath(home)):
        return
    for root in roots:
        if inside(real, os.path.realpath(_absolute(root))):
            raise ConfigError(
                f"tool_security.audit_log_path: {folder} is inside the writable root "
                f"{os.fspath(root)}, where a tool could change it; choose a folder outside"
            )


def _head(event: Event, kind: str) -> JSONObject:
    now = event.time or time.time()
    return {"type": kind, "time": now, "seq": event.seq, "turn": event.turn_id}


def _decision(event: ToolCallDecision) -> JSONObject:
    record: JSONObject = {
        **_head(event, "decision"),
        "call_id": event.call_id,
        "tool": event.tool,
        "verdict": event.verdict,
        "rule": event.rule,
        "risk": event.risk,
        "source": event.source,
        "reason": _short(event.reason),
        "keys": [_short(key) for key in event.keys[:_MAX_KEYS]],
        "sandbox": event.sandbox,
        "mutating": event.mutating,
        "arguments": _short(event.arguments),
    }
    if len(event.arguments) > _LONGEST:
        record["arguments_sha256"] = sha256(encoded(event.arguments)).hexdigest()
    if len(event.keys) > _MAX_KEYS:
        record["keys_in_all"] = len(event.keys)
    fingerprint = getattr(event, "fingerprint", None)
    if fingerprint:
        record["fingerprint"] = fingerprint
    return record


def _result(event: ToolCallEnd) -> JSONObject:
    return {
        **_head(event, "result"),
        "call_id": event.call_id,
        "tool": event.tool,
        "success": event.success,
        "failure": event.failure,
        "fields": event.fields,
        "duration": event.duration,
        "exit_code": event.exit_code,
        "signal": event.signal,
        "sandbox": event.sandbox,
        "bytes": event.bytes,
        "truncated": event.truncated,
        "spill": event.spill,
        "files": _hashes(event.files),
    }


def _hook(event: HookRan) -> JSONObject:
    return {
        **_head(event, "hook"),
        "call_id": event.call_id,
        "event": event.event,
        "command": [_short(word) for word in event.command[:_MAX_KEYS]],
        "outcome": event.outcome,
        "effect": event.effect,
        "reason": _short(event.reason),
        "exit_code": event.exit_code,
        "duration": event.duration,
    }


def _files_changed(event: FilesChanged) -> JSONObject:
    return {
        **_head(event, "files"),
        "checkpoint": event.checkpoint,
        "files": _hashes(event.files),
        "files_in_all": event.files_in_all,
    }


def _put_back(event: PutBack) -> JSONObject:
    return {
        **_head(event, "put_back"),
        "path": _short(event.path),
        "change": event.change,
        "by": event.by,
        "failure": _short(event.failure),
    }


def _hashes(files: Iterable[FileChange]) -> list[JSONObject]:
    return [{"path": file.path, "before": file.before, "after": file.after} for file in files]


_RECORDS: dict[type[Event], Callable[[Any], JSONObject]] = {
    ToolCallDecision: _decision,
    ToolCallEnd: _result,
    HookRan: _hook,
    FilesChanged: _files_changed,
    PutBack: _put_back,
}


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else truncate(text, Limit(_LONGEST))
