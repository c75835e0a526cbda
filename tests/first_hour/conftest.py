"""Toolrest as a new user installs it, and a project of theirs."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import machine
from tests.first_hour.person import as_ordinary, own


@pytest.fixture(scope="session")
def environments() -> Path:
    """A folder with two environments: `plain/.venv` has pytest, `toolrest/.venv` the wheel too.

    An ordinary user makes them once a run; its workers share them.
    """
    ground = Path(machine.solid_ground())
    base = ground / "first-hour"
    with (ground / "first-hour.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (base / "done").exists():
            base.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(base)]
            subprocess.run(command, cwd=machine.REPOSITORY, check=True, capture_output=True)
            (wheel,) = base.glob("*.whl")
            own(base)
            _install(base / "plain" / ".venv", "pytest")
            _install(base / "toolrest" / ".venv", "pytest", f"{wheel}[all]")
            (base / "done").touch()
    return base


def _install(folder: Path, *packages: str) -> None:
    """Make an environment with these packages, as an ordinary user does."""
    make = [machine.interpreter(ordinary=True), "-m", "venv", "--clear", str(folder)]
    fill = [str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "-q", *packages]
    for command in (make, fill):
        done = subprocess.run(
            [*as_ordinary(), *command],
            cwd="/",
            env=os.environ | {"HOME": machine.OWN_HOME},  # its settings for package registries
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")


def copy_environment(source: Path, target: Path) -> None:
    """Copy an environment; its programs and settings name the new folder."""
    shutil.copytree(source, target, symlinks=True)
    for file in [*(target / "bin").iterdir(), target / "pyvenv.cfg"]:
        data = b"" if file.is_symlink() else file.read_bytes()
        if bytes(source) in data and b"\0" not in data:
            file.write_bytes(data.replace(bytes(source), bytes(target)))


@pytest.fixture
def home(environments: Path) -> Iterator[Path]:
    """The fresh home of an ordinary user, outside /tmp."""
    yield from _folder(machine.solid_ground())


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    """A folder of an ordinary user's below /tmp."""
    yield from _folder("/tmp")


def _folder(place: str) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tea-", dir=place))
    own(made)
    yield made
    machine.remove(str(made))
