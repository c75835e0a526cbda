"""Mutants: changes of the source that must not pass, and the test that then fails.

One for each row of the mission, and lines chosen by risk: policy, sandbox, process, proxy,
approval.

`make mutants` copies the project, makes one change after the other in the copy and runs the row's
test there. A test that stays green has not held its row. Options: names of rows (`M-3 M-19`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """A row, a file below `src/toolrest`, a text in it and what replaces it, and the test."""

    row: str
    file: str
    old: str
    new: str
    test: str


TABLE = ROOT / "tests" / "data" / "mutants.toml"
PATIENCE = 600.0
TOO_LONG = -1


def run(folder: Path, *tests: str) -> int:
    """pytest's exit code in the copy: 0 passed, 1 failed."""
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TOO_LONG
    return done.returncode


def outcome(folder: Path, mutant: Mutant) -> str:
    """`killed`, `survived`, or what is wrong with the row itself."""
    path = folder / "src" / "toolrest" / mutant.file
    whole = path.read_text()
    if whole.count(mutant.old) != 1:
        return f"the text is there {whole.count(mutant.old)} times"
    path.write_text(whole.replace(mutant.old, mutant.new))
    try:
        code = run(folder, mutant.test)
    finally:
        path.write_text(whole)
    return {0: "survived", 1: "killed"}.get(
        code, f"pytest ended with {code} (-1: it took too long)"
    )


def main(names: list[str]) -> int:
    """Print a line for each row and the totals; 1 when one was not killed."""
    rows = tomllib.loads(TABLE.read_text())["mutant"]
    chosen = [Mutant(**row) for row in rows if not names or row["row"] in names]
    with tempfile.TemporaryDirectory(prefix="toolrest-mutants-") as made:
        folder = Path(made, "project")
        ignored = shutil.ignore_patterns(
            ".git", ".venv", "__pycache__", ".*_cache", "build", "dist"
        )
        shutil.copytree(ROOT, folder, ignore=ignored)
        # A test that fails anyway would prove nothing.
        if run(folder, *dict.fromkeys(mutant.test for mutant in chosen)) != 0:
            sys.stdout.write("the tests do not pass without a change either\n")
            return 1
        killed = 0
        for mutant in chosen:
            found = outcome(folder, mutant)
            killed += found == "killed"
            sys.stdout.write(f"{mutant.row:<10} {found:<10} {mutant.file}  {mutant.test}\n")
            sys.stdout.flush()
    sys.stdout.write(f"rows {len(chosen)}, killed {killed}, survived {len(chosen) - killed}\n")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
