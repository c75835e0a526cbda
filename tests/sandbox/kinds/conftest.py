"""Every test here runs once for each kind of sandbox; what each run showed is the matrix."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import SYSTEM
from tests.machine import solid_ground
from tests.sandbox.kinds import matrix
from tests.sandbox.kinds.kinds import CHEAP, FORCED, KINDS, Missing, furnish

from toolrest.agent.setup.runner import standalone_runner
from toolrest.config.loader import load
from toolrest.running.results import RunOutcome
from toolrest.running.runner import Runner

SHORT = ("test_runs", "test_writes")
"""What `make test` runs: the rest has tests of its own there, for bubblewrap and Landlock."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All kinds in `make test-system`; else those that need no package, most in `test-full`."""
    if "kind" in metafunc.fixturenames:
        names = KINDS if SYSTEM else CHEAP
        short = metafunc.function.__name__ in SHORT
        marks = [pytest.mark.system] if SYSTEM else [] if short else [pytest.mark.long]
        metafunc.parametrize("kind", [pytest.param(name, marks=marks) for name in names])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call" and isinstance(item, pytest.Function) and "kind" in item.funcargs:
        matrix.note(item, report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    matrix.write()


@pytest.fixture
def settings(kind: str) -> dict[str, Any]:
    """The settings that choose this kind; skipped by name where the machine does not have it."""
    try:
        return KINDS[kind]()
    except Missing as error:
        pytest.skip(f"{kind}: {error}")


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A project in a place that every sandbox shows as it is."""
    with tempfile.TemporaryDirectory(dir=solid_ground()) as folder:
        place = Path(folder, "project")
        (place / ".git/hooks").mkdir(parents=True)
        (place / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (place / ".git/config").write_text("[core]\n")
        (place / "sub").mkdir()
        (place / ".env").write_text("KEY=hidden-away\n")
        (place / "file").write_text("text\n")
        yield place


class Kind:
    """A session of one kind of sandbox: shell lines, run as a model's."""

    def __init__(self, runner: Runner, workspace: Path) -> None:
        self.runner = runner
        self.workspace = workspace

    async def sh(self, line: str, *, seconds: float = 60, cwd: str | None = None) -> RunOutcome:
        """Run a line to its end, or its time limit."""
        argv, folder = ("/bin/sh", "-c", line), cwd or str(self.workspace)
        return await self.runner.run(argv, folder, seconds=seconds, outside=False)

    async def out(self, line: str, **values: Any) -> str:
        """What a line printed; it must end with 0."""
        done = (await self.sh(line, **values)).result
        assert done.exit_code == 0, (done.exit_code, done.error, done.stdout, done.stderr)
        return done.stdout


Open = Callable[..., Awaitable[Kind]]


@pytest.fixture
async def opened(kind: str, settings: dict[str, Any], workspace: Path) -> AsyncIterator[Open]:
    """Opens sessions of this kind; `hosts` are its allow list, the rest are settings."""
    runners: list[Runner] = []

    async def start(hosts: tuple[str, ...] = (), **more: Any) -> Kind:
        flags = {"sandbox_mode": "workspace-write", **settings, **more}
        home = workspace.parent / "home"
        furnish(kind, home)
        env = {**os.environ, "TOOLREST_HOME": str(home)}
        config = load(workspace=str(workspace), home=str(home), flags=flags, env=env)
        runner = standalone_runner(
            config,
            env,
            network="allowlist" if hosts else "off",
            hosts=hosts,
            backend=FORCED.get(kind),
        )
        runners.append(runner)
        return Kind(runner, workspace)

    yield start
    for runner in runners:
        await runner.aclose()


@pytest.fixture
async def box(opened: Open) -> Kind:
    """A session without a network."""
    return await opened()
