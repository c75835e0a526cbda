"""The command against what Codex's own binary was recorded to do."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from tests.machine import NOBODY, become_ordinary

from toolrest.patch.command import main

Case: TypeAlias = dict[str, Any]
Tree: TypeAlias = dict[str, Any]


class Result(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def in_process(case: Case, root: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    patch = case["patch"].replace("$ROOT", str(root))
    argv = ["apply_patch"] if case.get("via") == "stdin" else ["apply_patch", patch]
    monkeypatch.chdir(root / case.get("cwd", "."))
    out, err = io.BytesIO(), io.BytesIO()
    code = main(argv, io.BytesIO(patch.encode()), out, err)
    return Result(code, out.getvalue().decode(), err.getvalue().decode())


def as_script(case: Case, root: Path, **how: Any) -> Result:
    patch = case["patch"].replace("$ROOT", str(root))
    argv = [sys.executable, "-m", "toolrest.patch"]
    stdin = case.get("via") == "stdin"
    done = subprocess.run(
        argv if stdin else [*argv, patch],
        input=patch.encode() if stdin else b"",
        cwd=root / case.get("cwd", "."),
        capture_output=True,
        check=False,
        env=os.environ | case.get("env", {}),
        **how,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def expected(case: Case, root: Path) -> Result:
    texts = [case[name].replace("$ROOT", str(root)) for name in ("stdout", "stderr")]
    return Result(case["exit_code"], *texts)


def as_nobody(case: Case, root: Path) -> Result:
    """Run as a user whom permission bits stop, with the tree in that user's hands.

    A fork, not a new interpreter: that user may not be able to reach this one.
    """
    for path in [root, *root.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become_ordinary()
            with pytest.MonkeyPatch.context() as monkeypatch:
                result = in_process(case, root, monkeypatch)
            os.write(writer, json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return Result(*json.loads(said))


def test_in_process(
    recorded: Case,
    folder: Path,
    build: Callable[[Path, Tree], None],
    snapshot: Callable[[Path], Tree],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build(folder, recorded["input"])
    if recorded.get("nonroot") and os.geteuid() == 0:
        result = as_nobody(recorded, folder)
    else:
        result = in_process(recorded, folder, monkeypatch)
    assert result == expected(recorded, folder)
    assert snapshot(folder) == recorded["expected"]


def test_as_a_script(
    scripted: Case,
    folder: Path,
    build: Callable[[Path, Tree], None],
    snapshot: Callable[[Path], Tree],
) -> None:
    build(folder, scripted["input"])
    if scripted.get("nonroot") and os.geteuid() == 0:
        result = as_nobody(scripted, folder)
    else:
        result = as_script(scripted, folder)
    assert result == expected(scripted, folder)
    assert snapshot(folder) == scripted["expected"]
