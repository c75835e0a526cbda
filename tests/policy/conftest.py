"""A workspace, a home and an outside for path tests, and a child that is an ordinary user."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolrest.policy import locate
from toolrest.policy.paths import PathPolicy

NOBODY = 65534


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
def places() -> Iterator[Places]:
    # Not tmp_path: its parents are closed to the ordinary user that some tests become.
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="toolrest-paths-")))
    base.chmod(0o755)
    made = Places(base / "work", base / "outside", base / "home")
    for folder in (made.workspace, made.outside, made.home, made.home / ".ssh"):
        folder.mkdir()
        folder.chmod(0o755)
    (made.home / ".ssh" / "id").write_text("SECRET KEY")
    (made.workspace / "a.txt").write_text("plain")
    (made.outside / "o.txt").write_text("outside")
    yield made
    for name, folders, _ in os.walk(base):
        for below in folders:
            if not os.path.islink(os.path.join(name, below)):
                os.chmod(os.path.join(name, below), 0o755)
    shutil.rmtree(base)


@pytest.fixture(params=["kernel", "walk"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Once as on Linux, once as where the kernel does not tell a descriptor's path."""
    if request.param == "walk":
        monkeypatch.setattr(locate, "tells_paths", lambda: False)
    return str(request.param)


@pytest.fixture
def as_user() -> Callable[[Callable[[], Any]], Any]:
    """Run a function as an ordinary user and return what it returns."""
    return _as_user


def _as_user(function: Callable[[], Any]) -> Any:
    if os.getuid() != 0:
        return function()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside idle worker threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, pickle.dumps(function()))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    return pickle.loads(data)
