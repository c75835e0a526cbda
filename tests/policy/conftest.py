"""A workspace, a home and an outside for path tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolrest.policy.paths import locate
from toolrest.policy.paths.policy import PathPolicy


@dataclass
class Places:
    """Folders that a path test plays with."""

    workspace: Path
    outside: Path
    home: Path

    def policy(self, **changes: Any) -> PathPolicy:
        """A policy for the workspace; keyword arguments are PathPolicy's own."""
        values: dict[str, Any] = {
            "workspace": self.workspace,
            "homes": [str(self.home)],
            "toolrest_home": self.home / ".toolrest",
        }
        return PathPolicy(**values | changes)


@pytest.fixture
def places(public_folder: Path) -> Places:
    base = public_folder
    made = Places(base / "work", base / "outside", base / "home")
    for folder in (made.workspace, made.outside, made.home, made.home / ".ssh"):
        folder.mkdir()
        folder.chmod(0o755)
    (made.home / ".ssh" / "id").write_text("SECRET KEY")
    (made.workspace / "a.txt").write_text("plain")
    (made.outside / "o.txt").write_text("outside")
    return made


@pytest.fixture(params=["kernel", "walk"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Once as on Linux, once as where the kernel does not tell a descriptor's path."""
    if request.param == "walk":
        monkeypatch.setattr(locate, "tells_paths", lambda: False)
    return str(request.param)
