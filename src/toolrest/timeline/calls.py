"""A call in words: its command, its title, its changes of files, the reason of its failure."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from typing import Any

from toolrest.timeline.cells import FileDiff, PlanStep


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments as an object; empty for freeform text and for what is not JSON."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def command_of(arguments: str) -> str | None:
    """The command line of a call that runs one; None for any other."""
    values = arguments_of(arguments)
    line = values.get("cmd", values.get("command"))
    if isinstance(line, list) and line:
        return command_line([str(word) for word in line])
    return line if isinstance(line, str) else None


def command_line(argv: Sequence[str]) -> str:
    """A command: the script where a shell of the system is only there to run one, else all words.

    A program elsewhere may be anything, whatever its name, and so may a name without a folder.
    """
    if len(argv) == 3 and argv[1] in ("-c", "-lc") and argv[0] in _SYSTEM_SHELLS:
        return argv[2]
    return shlex.join(argv)


_SYSTEM_SHELLS = {
    f"{folder}/{name}"
    for folder in ("/bin", "/usr/bin", "/usr/local/bin")
    for name in ("sh", "bash", "zsh", "dash")
}


_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_ANNOUNCED = 4
"""Lines behind one that ends with a colon."""
_FIRST = (
    "file_path",
    "path",
    "dir_path",
    "pattern",
    "query",
    "url",
    "image_path",
    "message",
    "text",
)
"""The argument that says most about a call, the best first."""


def call_title(tool: str, arguments: str, workspace: str = "") -> str:
    """A call in one line: its tool and the argument that says most, paths as short as can be."""
    values = arguments_of(arguments)
    chosen = next((values[name] for name in _FIRST if isinstance(values.get(name), str)), None)
    rest = [f"{name}={_short(value)}" for name, value in values.items() if value is not chosen]
    if chosen is None and len(values) == 1:
        (value,) = values.values()
        chosen, rest = _short(value), []
    if not values and arguments not in ("", "{}"):
        chosen = " ".join(arguments.split())
    text = next(iter(values.values())) if len(values) == 1 else arguments
    if isinstance(text, str) and (patched := _PATCHED.findall(text)):
        chosen = ", ".join(shorter(path, workspace) for path in patched)
    words = [tool]
    if chosen is not None:
        words.append(shorter(chosen, workspace))
    small = [text for text in rest if len(text) <= 40]
    return " ".join([*words, *small])


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shorter(path: str, workspace: str) -> str:
    """A path below the workspace without that folder; anything else as it is."""
    if workspace and path == workspace:
        return "."
    if workspace and path.startswith(workspace.rstrip(os.sep) + os.sep):
        return path[len(workspace.rstrip(os.sep)) + 1 :] or path
    return path


def failure_reason(kind: str, output: str) -> str:
    """The line of an output that says why the call failed, with what it announces."""
    lines = output.strip().splitlines() or [""]
    if kind == "sandbox_denied":
        return f"{kind}: {lines[-1]}"
    most = 1 + _ANNOUNCED if lines[0].endswith(":") else 1
    more = ["…"] if 1 < most < len(lines) else []
    return "\n".join([f"{kind}: {lines[0]}", *lines[1:most], *more])


def plan_steps(values: Any) -> tuple[PlanStep, ...]:
    """The steps of a plan as models write it; none where it is no plan."""
    rows = values if isinstance(values, list) else []
    if not all(isinstance(row, dict) and isinstance(row.get("step"), str) for row in rows):
        return ()
    return tuple(PlanStep(row["step"], str(row.get("status", "pending"))) for row in rows)


def file_diffs(changes: dict[str, Any]) -> list[FileDiff]:
    """The changes of a patch event."""
    found = []
    for path, change in changes.items():
        kind = change.get("type")
        if kind not in ("add", "delete", "update"):
            continue
        text = str(change.get("unified_diff") or change.get("content") or "")
        found.append(FileDiff(path, kind, text, str(change.get("move_path") or "")))
    return found
