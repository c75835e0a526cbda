"""New paths of very many folders."""

from __future__ import annotations

import os
from pathlib import Path

from tests.clock import calls

from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.run import run


def add(root: Path, folders: int) -> tuple[int, str]:
    """Add a file that many folders deep: the exit code and the notes."""
    path = f"{folders}/" + "a/" * folders + "x"
    with OsFiles() as files:
        outcome = run(f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch", files, str(root))
    return outcome.exit_code, " ".join(outcome.notes)


def test_a_folder_more_costs_the_same_at_any_depth(tmp_path: Path) -> None:
    """Failed before: each new folder was reached from the root again; 2,000 took 21 s."""
    few, many = calls(lambda: add(tmp_path, 100)), calls(lambda: add(tmp_path, 400))
    assert (tmp_path / "400" / ("a/" * 400) / "x").read_text() == "x\n"
    assert many < 5 * few


def test_a_path_that_no_program_can_name_is_refused_first(tmp_path: Path) -> None:
    code, notes = add(tmp_path, 2500)
    assert code == 1
    assert "Filename too long" in notes
    assert os.listdir(tmp_path) == []
