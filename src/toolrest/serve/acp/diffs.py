"""Changes of files as diffs of the Agent Client Protocol: old and new text, a hunk at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from acp.helpers import tool_diff_content
from acp.schema import FileEditToolCallContent

from toolrest.patch.codex_grammar import AddFile, DeleteFile, Patch
from toolrest.patch.errors import PatchError
from toolrest.patch.forms.string_edits import EditRequest
from toolrest.patch.request import read
from toolrest.patch.text.diff import NO_NEWLINE, split_lines
from toolrest.policy.terminal_safe import display_safe
from toolrest.timeline.calls import arguments_of, shorter

Diff = FileEditToolCallContent
_MARKS = f" -+{NO_NEWLINE[0]}"


def of_changes(changes: Mapping[str, Any], cwd: str) -> list[Diff]:
    """The diffs of `changes` in patch events and approval requests."""
    return [diff for path, change in changes.items() for diff in _of_change(path, change, cwd)]


def shows_all(changes: Mapping[str, Any], cwd: str) -> bool:
    """Whether diffs show all of these changes: a moved file or an equal text needs words."""
    return bool(changes) and all(
        isinstance(change, dict) and not change.get("move_path") and _of_change(path, change, cwd)
        for path, change in changes.items()
    )


def _of_change(path: str, change: Any, cwd: str) -> list[Diff]:
    full = os.path.join(cwd, path)
    kind = change.get("type") if isinstance(change, dict) else None
    if kind == "add":
        return [_diff(full, None, str(change.get("content", "")))]
    if kind == "delete":
        return [_diff(full, str(change.get("content", "")), "")]
    text = change.get("unified_diff") if isinstance(change, dict) else None
    place = (
        os.path.join(cwd, str(change["move_path"])) if text and change.get("move_path") else full
    )
    return [_diff(place, old, new) for old, new in _hunks(str(text or ""))]


def _hunks(diff: str) -> list[tuple[str, str]]:
    """The old and the new text of each hunk of our unified diffs; none for anything else."""
    found: list[tuple[list[str], list[str]]] = []
    last = ""
    for line in split_lines(diff):
        mark, text = line[0], line[1:]
        if mark == "@":
            found.append(([], []))
        elif not found or mark not in _MARKS:
            return []
        elif mark == NO_NEWLINE[0]:
            for side, added in zip(found[-1], ("+", "-"), strict=True):
                if last != added and side:
                    side[-1] = side[-1].rstrip("\r\n")
        else:
            old, new = found[-1]
            old += [text] * (mark != "+")
            new += [text] * (mark != "-")
        last = mark
    return [("".join(old), "".join(new)) for old, new in found]


def of_call(arguments: str, cwd: str) -> list[Diff]:
    """The diffs that a call's arguments describe: a patch, or string edits; else none."""
    try:
        body = read(arguments_of(arguments) or arguments).body
    except PatchError:
        return []
    if isinstance(body, EditRequest):
        full = os.path.join(cwd, body.path)
        return [_diff(full, edit.old, edit.new) for edit in body.edits]
    return list(_of_patch(body, cwd)) if isinstance(body, Patch) else []


def _of_patch(patch: Patch, cwd: str) -> Iterator[Diff]:
    for operation in patch.operations:
        full = os.path.join(cwd, operation.path)
        if isinstance(operation, AddFile):
            yield _diff(full, None, operation.text)
        elif isinstance(operation, DeleteFile):
            yield _diff(full, "", "")
        else:
            for chunk in operation.chunks:
                yield _diff(full, "\n".join(chunk.old), "\n".join(chunk.new))


def title(diffs: list[Diff], cwd: str) -> str:
    """The changed files in one line: `Edit a.py and 2 more files`."""
    paths = list(dict.fromkeys(diff.path for diff in diffs))
    more = f" and {len(paths) - 1} more file{'s' * (len(paths) > 2)}" if paths[1:] else ""
    return display_safe(f"Edit {shorter(paths[0], cwd)}{more}")


def _diff(path: str, old: str | None, new: str) -> Diff:
    before = None if old is None else display_safe(old, keep_layout=True)
    return tool_diff_content(display_safe(path), display_safe(new, keep_layout=True), before)
