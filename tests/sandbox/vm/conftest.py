"""What a machine is made of, prepared once a run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.machine import require, solid_ground

from toolrest.config.schema.security import VmSettings
from toolrest.sandbox.vm.prepare import prepare

Furnish = Callable[[Path], Path]


@pytest.fixture(scope="session")
def furnish(tmp_path_factory: pytest.TempPathFactory) -> Furnish:
    """Give a home of Toolrest what `toolrest vm prepare` would make in it."""
    require("namespaces", "qemu")
    made = tmp_path_factory.mktemp("prepared") / "vm"
    prepare(str(made), VmSettings(), lambda _: None)

    def into(home: Path) -> Path:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copytree(made, home / "vm")
        return home

    return into


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace outside /tmp, as most are."""
    made = Path(solid_ground()) / f"vm-{tmp_path.name}"
    made.mkdir()
    return made
