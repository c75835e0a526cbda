"""`toolrest apply-patch`: the script `apply_patch` under the command's own name (M-16)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

PATCH = "*** Begin Patch\n*** Add File: made\n+hi\n*** End Patch\n"


def test_it_does_what_the_script_does(desk: Any, tmp_path: Path) -> None:
    ran = desk.run("apply-patch", PATCH)
    script = tmp_path / "script"
    script.mkdir()
    done = subprocess.run(
        [str(Path(sys.executable).parent / "apply_patch"), PATCH],
        cwd=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.code, ran.out, ran.err) == (0, done.stdout, done.stderr)
    assert "A made" in ran.out
    assert (desk.workspace / "made").read_text() == (script / "made").read_text() == "hi\n"


def test_a_patch_may_come_from_a_pipe(desk: Any) -> None:
    assert desk.run("apply-patch", said=PATCH).code == 0
    assert (desk.workspace / "made").exists()


def test_what_cannot_be_applied_changes_nothing(desk: Any) -> None:
    ran = desk.run("apply-patch", PATCH.replace("Add", "Delete").replace("+hi\n", ""))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err
    assert list(desk.workspace.iterdir()) == []
    assert "Usage" in desk.run("apply-patch", "--help").out
