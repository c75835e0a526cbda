"""Folders of ours in the home are private, whatever the umask is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from toolrest.private_files import make_private


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_every_level_that_is_made_is_private(tmp_path: Path, umask: int) -> None:
    """Failed before: `os.makedirs` gives its mode to the last folder only, less the umask."""
    before = os.umask(umask)
    try:
        make_private(str(tmp_path / "a" / "b" / "c"))
        make_private(str(tmp_path / "a" / "b" / "c"))
    finally:
        os.umask(before)
    for folder in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


@pytest.mark.needs("sandbox")
def test_the_homes_folders_are_private_under_any_umask(desk: Any) -> None:
    """Failed before: `run` was 0777 less the umask."""
    ran = desk.process("call", "shell_command", '{"command": "true"}', umask=0)
    assert ran.code == 0, ran.err
    open_folders = [
        f"{path} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in (desk.home / "run", desk.home / "run" / "mountpoints", desk.home / "audit")
        if stat.S_IMODE(path.stat().st_mode) != 0o700
    ]
    assert open_folders == []
