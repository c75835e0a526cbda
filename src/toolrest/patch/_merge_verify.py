"""Would a patch apply? Every operation is held against the unchanged disk; nothing is written.

This is what a model's patch must pass before anybody is asked about it. It is stricter than
applying: no path may be named twice, and what is deleted must be text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.patch.text.encoding import Unreadable, decode
from toolrest.patch.errors import ApplyError, ParseError
from toolrest.patch.files.file_system import FileSystem
from toolrest.patch.codex_grammar import AddFile, DeleteFile, Patch
from toolrest.patch.files.paths import Target, resolve
from toolrest.patch.plan import Record, read_file, updated_or_refused
from toolrest.patch.overlay import View

if TYPE_CHECKING:
    from toolrest.patch.codex_grammar import Operation


def verify(patch: Patch, files: FileSystem, cwd: str, legacy: str | None = None) -> list[Record]:
    """What each operation would do. PatchError says why the first bad one cannot."""
    seen: set[str] = set()
    view = View(files)
    records = []
    for operation in patch.operations:
        target = resolve(cwd, operation.path)
        if target.path in seen:
            raise ParseError(f"multiple operations target {target.label}")
        seen.add(target.path)
        records.append(_record(operation, target, view, cwd, legacy))
    return records


def _record(
    operation: Operation, target: Target, view: View, cwd: str, legacy: str | None
) -> Record:
    if isinstance(operation, AddFile):
        return Record(target.label, None, operation.text.encode())
    if isinstance(operation, DeleteFile):
        return Record(target.label, _text_to_delete(view, target, legacy), None)
    _, data = read_file(view, target, f"Failed to read file to update {target.label}")
    content = updated_or_refused(data, operation, target, legacy)
    move_to = operation.move_to
    move_path = None if move_to is None else resolve(cwd, move_to).label
    return Record(target.label, data, content, move_path)


def _text_to_delete(view: View, target: Target, legacy: str | None) -> bytes:
    failed = f"Failed to read {target.label}"
    _, data = read_file(view, target, failed)
    try:
        decode(data, legacy)
    except Unreadable as error:
        raise ApplyError(f"{failed}: {error}") from None
    return data
