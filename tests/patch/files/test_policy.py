"""Patches under a session's path policy."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from toolrest.patch.files.policy_files import PolicyFiles
from toolrest.patch.run import PatchOutcome, run
from toolrest.policy.paths.policy import PathPolicy

Tree: TypeAlias = dict[str, Any]


@pytest.fixture
def outside(folder: Path) -> Path:
    (folder / "outside").mkdir()
    (folder / "outside/f").write_text("x\n")
    return folder / "outside"


@pytest.fixture
def workspace(folder: Path, outside: Path) -> Path:
    root = folder / "work"
    (root / "d").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "f").write_text("x\n")
    (root / "d/f").write_text("x\n")
    (root / ".env").write_text("KEY=1\n")
    (root / "file-out").symlink_to(outside / "f")
    (root / "folder-out").symlink_to(outside)
    (root / "twin").hardlink_to(root / ".env")
    return root


def apply(workspace: Path, body: str, **rules: Any) -> PatchOutcome:
    with PolicyFiles(PathPolicy(workspace, **rules)) as files:
        return run(f"*** Begin Patch\n{body}\n*** End Patch", files, str(workspace))


UPDATE = "*** Update File: {}\n@@\n-x\n+y"
ADD = "*** Add File: {}\n+y"
DELETE = "*** Delete File: {}"


@pytest.mark.parametrize(
    "body",
    [
        UPDATE.format("f"),
        ADD.format("new/deep/f"),
        DELETE.format("d/f"),
        ADD.format("d/.env"),
        DELETE.format("file-out"),
        UPDATE.format("f").replace("@@", "*** Move to: d/g\n@@"),
    ],
)
def test_what_is_allowed(workspace: Path, outside: Path, body: str) -> None:
    outcome = apply(workspace, body)
    assert (outcome.stderr, outcome.notes) == ("", [])
    assert (outside / "f").read_text() == "x\n"


@pytest.mark.parametrize(
    ("body", "stderr"),
    [
        (ADD.format("../outside/n"), "Failed to write file $/outside/n"),
        (ADD.format("/outside/n"), "Failed to create parent directories for /outside/n"),
        (UPDATE.format("../outside/f"), "Failed to write file $/outside/f"),
        (DELETE.format("../outside/f"), "Failed to delete file $/outside/f"),
        (UPDATE.format("file-out"), "Failed to write file $/work/file-out"),
        (ADD.format("file-out"), "Failed to write file $/work/file-out"),
        (ADD.format("folder-out/n"), "Failed to write file $/work/folder-out/n"),
        (UPDATE.format("folder-out/f"), "Failed to write file $/work/folder-out/f"),
        (DELETE.format("folder-out/f"), "Failed to delete file $/work/folder-out/f"),
        (
            UPDATE.format("f").replace("@@", "*** Move to: ../outside/g\n@@"),
            "Failed to write file $/outside/g",
        ),
        (
            UPDATE.format("../outside/f").replace("@@", "*** Move to: g\n@@"),
            "Failed to remove original $/outside/f",
        ),
        (ADD.format(".git/hooks/x"), "Failed to create parent directories for $/work/.git/hooks/x"),
        (ADD.format(".git/x"), "Failed to write file $/work/.git/x"),
        (ADD.format(".env"), "Failed to write file $/work/.env"),
        (
            "*** Update File: .env\n@@\n-KEY=1\n+KEY=2",
            "Failed to read file to update $/work/.env: Permission denied (os error 13)",
        ),
        (
            "*** Update File: twin\n@@\n-KEY=1\n+KEY=2",
            "Failed to read file to update $/work/twin: Permission denied (os error 13)",
        ),
        (ADD.format("twin"), "Failed to write file $/work/twin"),
    ],
)
def test_what_is_refused(
    folder: Path,
    workspace: Path,
    snapshot: Callable[[Path], Tree],
    body: str,
    stderr: str,
) -> None:
    before = snapshot(folder)
    outcome = apply(workspace, f"*** Add File: harmless\n+h\n{body}")
    assert outcome.stderr == stderr.replace("$", str(folder)) + "\n"
    assert snapshot(folder) == before
    assert " cannot be " in outcome.notes[0]
    assert ".toolrest-" not in outcome.notes[0]


def test_read_only_sessions_write_nothing(workspace: Path) -> None:
    outcome = apply(workspace, UPDATE.format("f"), mode="read-only")
    assert outcome.stderr == f"Failed to write file {workspace}/f\n"
    assert "read-only" in outcome.notes[0]


def test_read_roots_and_size_limits(folder: Path, workspace: Path) -> None:
    assert apply(workspace, UPDATE.format("f"), read_roots=[workspace]).exit_code == 0
    (workspace / "big").write_text("x\n" * 100)
    outcome = apply(workspace, UPDATE.format("big"), max_file_size=50)
    assert outcome.stderr.endswith("file is too large to read: limit is 50 bytes\n")
    outcome = apply(workspace, UPDATE.format("../outside/f"), read_roots=[workspace])
    assert "Permission denied" in outcome.stderr


@pytest.mark.slow
def test_a_folder_that_keeps_turning_into_a_link(
    workspace: Path, outside: Path, full: bool
) -> None:
    """A folder is swapped for a link to the outside, again and again, while we write."""
    done = threading.Event()
    target, aside, link = workspace / "d", workspace / "aside", workspace / "link"
    link.symlink_to(outside)

    def swap() -> None:
        while not done.is_set():
            os.rename(target, aside)
            os.rename(link, target)
            os.rename(target, link)
            os.rename(aside, target)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        applied = 0
        for _ in range(3000 if full else 300):
            outcome = apply(workspace, "*** Update File: d/f\n@@\n+y")
            applied += outcome.exit_code == 0
    finally:
        done.set()
        thread.join()
    assert sorted(path.name for path in outside.iterdir()) == ["f"]
    assert (outside / "f").read_text() == "x\n"
    assert applied > 0
