"""Whole-file writes: make a file, or replace the content of one.

Mode, owner, encoding and byte order mark of an existing file are kept.
"""

from __future__ import annotations

from msgspec import Struct

from toolrest.patch.errors import ApplyError
from toolrest.patch.files.file_system import FileSystem
from toolrest.patch.files.paths import resolve
from toolrest.patch.plan import Plan, Planner, Record
from toolrest.patch.text.encoding import BOM, Unreadable, decode


class WriteRequest(Struct, frozen=True):
    """A file and its new text."""

    path: str
    content: str


def plan_write(
    request: WriteRequest, files: FileSystem, cwd: str, legacy: str | None = None
) -> Plan | None:
    """Plan the write. None when the file holds this already; PatchError if it cannot be written."""
    planner = Planner(files, cwd, legacy)
    target = resolve(cwd, request.path, literal=True)
    try:
        spot, data = planner.read(target)
    except ApplyError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        content = request.content.encode()
        planner.write_new(target, content)
        planner.records.append(Record(target.label, None, content))
        planner.added.append(target.spelled)
        return planner.finish()
    content = _like(data, request.content, target.label, legacy)
    if content == data:
        return None
    planner.replace(target, spot, data, content)
    return planner.finish()


def _like(data: bytes, text: str, label: str, legacy: str | None) -> bytes:
    """The text in the encoding of the existing file; UTF-8 where that is no text."""
    try:
        there = decode(data, legacy)
    except Unreadable:
        return text.encode()
    keeps_mark = there.text.startswith(BOM) and not text.startswith(BOM)
    return there.encode(BOM + text if keeps_mark else text, label)
