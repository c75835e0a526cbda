"""What a model and the events see of a patch, against the recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from toolrest.patch import codex_grammar as grammar
from toolrest.patch import run as summary
from toolrest.patch.errors import PatchError
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.overlay import OverlayView
from toolrest.patch.plan import verify
from toolrest.patch.report.changes import Change, changes
from toolrest.patch.run import run

Case: TypeAlias = dict[str, Any]
Tree: TypeAlias = dict[str, Any]


def as_a_tool(text: str, cwd: str) -> tuple[str, list[Change] | None]:
    """The steps of the tool, without an approver: verify, list the changes, run."""
    with OsFiles() as files:
        try:
            patch = grammar.parse(text)
            listed = changes(verify(patch, OverlayView(files), cwd))
        except PatchError as error:
            return summary.refused(error), None
        if not patch.operations:
            return summary.EMPTY, None
        outcome = run(text, files, cwd)
    return summary.ran(outcome.exit_code, 0.0, outcome.stdout + outcome.stderr), listed


def test_text_and_change_list(
    tool_case: Case,
    recorded_by_name: dict[str, Case],
    folder: Path,
    build: Callable[[Path, Tree], None],
    snapshot: Callable[[Path], Tree],
) -> None:
    case = recorded_by_name[tool_case["name"]]
    build(folder, case["input"])
    cwd = folder / case.get("cwd", ".")
    text, listed = as_a_tool(case["patch"].replace("$ROOT", str(folder)), str(cwd))
    assert text.replace(str(folder), "$ROOT") == tool_case["output"]
    items = None if listed is None else [_placed(_item(change), folder) for change in listed]
    assert items == tool_case["changes"]
    assert snapshot(folder) == tool_case["expected"]


def _item(change: Change) -> dict[str, Any]:
    """A change as the recordings have it: an element of a `fileChange` item."""
    kind, diff = {"type": change.type}, change.text
    if change.type != "update":
        return {"path": change.path, "kind": kind, "diff": diff}
    moved = f"\n\nMoved to: {change.move_path}" if change.move_path is not None else ""
    return {
        "path": change.path,
        "kind": {**kind, "move_path": change.move_path},
        "diff": diff + moved,
    }


def _placed(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {key: _placed(item, folder) for key, item in value.items()}
    return value.replace(str(folder), "$ROOT") if isinstance(value, str) else value
