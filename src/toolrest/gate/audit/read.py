"""Verify and show an audit log.

There is no secret in the chain: it shows what was changed afterwards, but a process that can
write both the log and its head file can forge both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, TypeAlias

from msgspec import Struct, field

from toolrest.errors import AuditError
from toolrest.gate.audit.chain import (
    GENESIS,
    HEAD_SUFFIX,
    SealedLine,
    parse_head,
    parsed,
    unseal,
)
from toolrest.gate.output.truncate import Limit, truncate
from toolrest.items import JSONObject
from toolrest.policy.terminal_safe import display_safe
from toolrest.private_files import reason, regular_file

Finding: TypeAlias = Literal[
    "intact",
    "edited",
    "removed",
    "reordered",
    "duplicated",
    "truncated",
    "rewritten",
    "rewritten_end",
    "torn",
    "uncovered",
    "no_head",
    "no_log",
]
CAVEAT = "Anyone who can write both the log and its head file can forge them."
_MESSAGES: dict[Finding, str] = {
    "intact": "All {count} lines are intact.",
    "edited": "Line {line} was edited: its content does not match its hash.",
    "removed": "Line {line} was removed (lines up to {last} are missing).",
    "reordered": "Line {line} was moved: it was written as line {number}.",
    "duplicated": "Line {line} repeats line {number}.",
    "truncated": "The log was cut: {count} lines were written, {there} are there; line {line} is "
    "the first one missing.",
    "rewritten": "Line {line} was replaced: the line after it follows another one.",
    "rewritten_end": "Line {line} is not the one that the head file remembers: it, or lines "
    "before it, were replaced.",
    "torn": "Line {line} was never finished: the session died while writing it. The {there} "
    "lines before it are intact.",
    "uncovered": "The head file knows {count} of {there} lines: the session died before it was "
    "updated, or lines from {line} on were added.",
    "no_head": "The head file {head} is missing or damaged, so a cut end would not be seen. The "
    "{there} lines that are there follow each other.",
    "no_log": "The log is gone: its head file {head} remembers {count} lines.",
}
_ARGUMENTS_SHOWN = 100


class VerifyResult(Struct, frozen=True):
    """The result of `verify`. `line` is the first line at fault, counted from 1."""

    ok: bool
    finding: Finding
    lines: int
    line: int | None
    message: str
    ended: bool = False

    def __str__(self) -> str:
        return f"{self.message} {CAVEAT}"


class AuditRow(Struct):
    """One call (or the start or end of a session) as a person reads it; all text is safe."""

    line: int
    time: str
    tool: str
    verdict: str
    result: str
    duration: str
    arguments: str
    details: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        columns = (self.time, self.tool, self.verdict, self.result, self.duration, self.arguments)
        return "  ".join(column for column in columns if column)


def verify(path: str | os.PathLike[str]) -> VerifyResult:
    """Check every line, their order, and the end against the head file.

    A log that cannot be read raises AuditError; a damaged one is a result, and so is one that is
    gone while its head file is there.
    """
    path = os.fspath(path)
    if not os.path.lexists(path) and os.path.lexists(path + HEAD_SUFFIX):
        head = path + HEAD_SUFFIX
        count, _ = _read_head(head) or ("an unknown number of", "")
        message = _MESSAGES["no_log"].format(head=head, count=count)
        return VerifyResult(False, "no_log", 0, None, message)
    with _opened(path) as log:
        scan = _Scan()
        for line in log:
            if (fault := scan.take(line)) is not None:
                return scan.explain(fault, log)
    return _compare_with_head(scan, path + HEAD_SUFFIX)


def show(path: str | os.PathLike[str]) -> Iterator[AuditRow]:
    """Yield a row for each call when its result is read, then the calls that have none."""
    waiting: dict[str, AuditRow] = {}
    with _opened(os.fspath(path)) as log:
        for number, line in enumerate(log, 1):
            record = parsed(line)
            kind, call_id = record.get("type"), f"{record.get('session')} {record.get('call_id')}"
            if kind == "decision":
                _add_decision(waiting, call_id, record, number)
            elif kind == "result":
                row = waiting.pop(call_id, None) or _row(record, number)
                _add_result(row, record)
                yield row
            elif kind == "files":
                row = _row(record, number, tool="files_changed", result="changed")
                _add_files(row, record)
                yield row
            elif kind in ("session_start", "session_end"):
                yield _row(record, number, tool=kind, arguments=_safe(record.get("session", "")))
            else:
                yield _row({}, number, result="unreadable line")
    yield from waiting.values()


class _Scan:
    """Walks the chain and stops at the first line that does not belong where it stands."""

    def __init__(self) -> None:
        self.count = 0
        self.hashes: list[str] = [GENESIS]
        self.torn = False
        self.ended = False
        self._bad: SealedLine | None = None

    def take(self, line: bytes) -> Finding | None:
        if not line.endswith(b"\n"):
            self.torn = True
            return None
        sealed = unseal(line)
        if sealed is None:
            return "edited"
        self._bad = sealed
        if sealed.number != self.count + 1:
            return "duplicated" if sealed.number <= self.count else "removed"
        if sealed.prev != self.hashes[-1]:
            return "rewritten"
        self.count += 1
        self.hashes.append(sealed.hash)
        self.ended = sealed.record.get("type") == "session_end"
        return None

    def explain(self, fault: Finding, rest: BinaryIO) -> VerifyResult:
        line = self.count + 1
        number = self._bad.number if self._bad else 0
        if fault == "removed" and any(
            (later := unseal(one)) is not None and later.number == line for one in rest
        ):
            fault = "reordered"
        if fault == "rewritten" and line > 1:
            line -= 1
        message = _MESSAGES[fault].format(line=line, number=number, last=number - 1)
        return VerifyResult(False, fault, self.count, line, message)


def _compare_with_head(scan: _Scan, head_path: str) -> VerifyResult:
    head = _read_head(head_path)
    count, digest = head or (0, "")
    finding: Finding = "intact"
    line: int | None = None
    if head is None:
        finding = "no_head"
    elif count > scan.count:
        finding, line = "truncated", scan.count + 1
    elif count < 0 or scan.hashes[count] != digest:
        finding, line = "rewritten_end", count
    elif scan.torn:
        finding, line = "torn", scan.count + 1
    elif count < scan.count:
        finding, line = "uncovered", count + 1
    message = _MESSAGES[finding].format(line=line, count=count, there=scan.count, head=head_path)
    return VerifyResult(finding == "intact", finding, scan.count, line, message, scan.ended)


def _read_head(path: str) -> tuple[int, str] | None:
    try:
        with _opened(path) as head:
            return parse_head(head.read(4096))
    except AuditError:
        return None


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb", opener=regular_file)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise AuditError(f"cannot read the audit log {path}: {why}") from error


def _add_decision(
    waiting: dict[str, AuditRow], call_id: str, record: JSONObject, number: int
) -> None:
    verdict = _safe(record.get("verdict", "?"))
    if record.get("source", "policy") != "policy":
        verdict += f" by {_safe(record['source'])}"
    row = waiting.get(call_id)
    if row is None:
        arguments = truncate(_safe(record.get("arguments", "")), Limit(_ARGUMENTS_SHOWN))
        row = waiting[call_id] = _row(record, number, verdict=verdict, arguments=arguments)
        row.result = "no result"
    else:
        row.verdict += f", {verdict}"
    row.details.append(f"{verdict}: {_safe(record.get('rule', ''))}")


def _add_result(row: AuditRow, record: JSONObject) -> None:
    if record.get("failure"):
        row.result = _safe(record["failure"])
    else:
        success = record.get("success")
        row.result = "ok" if success is True else "done" if success is None else "unsuccessful"
    if record.get("exit_code") is not None:
        row.result += f" (exit {_safe(record['exit_code'])})"
    row.duration = _duration(record.get("duration"))
    _add_files(row, record)


def _add_files(row: AuditRow, record: JSONObject) -> None:
    files = record.get("files")
    for change in files if isinstance(files, list) else []:
        if isinstance(change, dict):
            before, after = (str(change.get(side) or "-")[:12] for side in ("before", "after"))
            row.details.append(_safe(f"{change.get('path')}: {before} -> {after}"))


def _row(
    record: JSONObject,
    line: int,
    *,
    tool: str = "",
    verdict: str = "",
    result: str = "",
    arguments: str = "",
) -> AuditRow:
    tool = tool or _safe(record.get("tool", ""))
    return AuditRow(line, _when(record.get("time")), tool, verdict, result, "", arguments)


def _when(value: Any) -> str:
    try:
        return datetime.fromtimestamp(float(value), UTC).isoformat(" ", "seconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def _duration(value: Any) -> str:
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return ""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _safe(value: Any) -> str:
    return display_safe(str(value))
