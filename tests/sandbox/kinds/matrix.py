"""The matrix of the conformance suite: a row for each test, a column for each kind.

`TOOLREST_WRITE_DOCS=1` writes it to docs/sandbox-kinds.md, between its marks, from runs in one
process (`-n 0`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.machine import REPOSITORY
from tests.sandbox.kinds.kinds import KINDS

PAGE = REPOSITORY / "docs/sandbox-kinds.md"
_BEGIN, _END = "<!-- matrix -->", "<!-- end of matrix -->"
_cells: dict[str, dict[str, str]] = {}


def note(item: pytest.Function, report: pytest.TestReport) -> None:
    """Note what a test showed for its kind: `yes`, `no` with the reason, or nothing to show."""
    row = (item.function.__doc__ or item.name).partition("\n")[0].rstrip(".")
    kind = str(item.funcargs["kind"])
    said = dict(report.user_properties).get("cell")
    words = {"passed": "yes", "failed": "FAILED", "skipped": "–"}[report.outcome]
    cells = _cells.setdefault(row, {})
    if report.outcome != "skipped" or kind not in cells:
        cells[kind] = str(said or words)


def write() -> None:
    """Write the page, if that is asked for and there is anything."""
    if not _cells or os.environ.get("TOOLREST_WRITE_DOCS") != "1":
        return
    table = _read(PAGE)
    for row, cells in _cells.items():
        table.setdefault(row, {}).update(cells)
    kinds = [name for name in KINDS if any(name in cells for cells in table.values())]
    lines = ["| | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    for row, cells in table.items():
        lines.append("| " + " | ".join([row, *(cells.get(kind, "–") for kind in kinds)]) + " |")
    _replace(PAGE, "\n".join(lines))


def _read(page: Path) -> dict[str, dict[str, str]]:
    """The table that is there: a run of some kinds leaves the others as they are."""
    lines = page.read_text().partition(_BEGIN)[2].partition(_END)[0].split("\n")
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line]
    if not rows:
        return {}
    _, *kinds = rows[0]
    return {row[0]: dict(zip(kinds, row[1:], strict=True)) for row in rows[2:]}


def _replace(page: Path, table: str) -> None:
    text = page.read_text()
    pattern = re.compile(f"{re.escape(_BEGIN)}.*{re.escape(_END)}", re.DOTALL)
    page.write_text(pattern.sub(lambda _: f"{_BEGIN}\n{table}\n{_END}", text))
