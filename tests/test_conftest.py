"""How a run of the tests ends: what is skipped, what is left, and what hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine import REASONS, REPOSITORY

pytestmark = pytest.mark.slow


def run_tests(folder: Path, text: str, *options: str, **env: str) -> tuple[int, str]:
    """Run a test file under the same conftest; the exit code and all that was printed."""
    (folder / "conftest.py").write_text((REPOSITORY / "tests" / "conftest.py").read_text())
    (folder / "pytest.ini").write_text(
        "[pytest]\ntimeout = 60\nasyncio_default_fixture_loop_scope = function\n"
        "addopts = -rfEs\nmarkers =\n needs(name): what it needs\n slow: left by make test\n"
    )
    (folder / "test_x.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **env},
    )
    return done.returncode, done.stdout + done.stderr


ENDS = """
import pytest
from tests import machine
machine.known(dict.fromkeys(machine.REASONS, False) | {"namespaces": True})
@pytest.mark.parametrize("n", range(3))
@pytest.mark.needs("namespaces")
def test_it(n): pass
@pytest.mark.slow
def test_other(): pass
def test_more(): pass
"""


def test_what_the_machine_lacks_and_what_is_slow_is_counted_at_the_end(tmp_path: Path) -> None:
    options = ("-n", "1", "-m", "not slow")
    code, text = run_tests(tmp_path, ENDS, *options, TOOLREST_TEST_FULL="0")
    *_, reason, ends, last = text.strip().splitlines()
    assert code == 0, text
    assert reason.startswith("SKIPPED [3] ")
    assert reason.endswith(REASONS["namespaces"])
    assert ends.startswith("1 passed, 3 skipped")
    assert last == "1 slow tests are left; make check runs them too"


def test_a_full_run_that_skips_a_test_fails(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, ENDS, TOOLREST_TEST_FULL="1")
    assert (code, "3 skipped; a full run skips nothing" in text) == (1, True), text


HANGS = """
import subprocess, sys, pytest
from contextlib import suppress
CHILD = "import os, signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32));"
CHILD += "os.setsid(); print(os.getpid(), flush=True); time.sleep(900)"
@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
    open("pid", "wb").write(process.stdout.readline())
    yield process
    process.stdout.read()  # waits for as long as the child lives
    process.wait()
@pytest.mark.timeout(1)
def test_hangs(child): child.wait()
@pytest.mark.timeout(1)
def test_swallows():
    child = subprocess.Popen(["sleep", "900"])
    with suppress(BaseException):
        child.wait()
    child.wait()
def test_goes_on(): pass
"""


def test_a_test_that_hangs_is_ended_with_its_children_and_has_failed(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, HANGS, TOOLREST_TEST_GRACE="1")
    assert code == 1, text
    assert "FAILED test_x.py::test_hangs" in text
    assert "FAILED test_x.py::test_swallows - it hung, and its processes were killed" in text
    assert "test_x.py::test_hangs hangs; its processes are killed" in text
    assert "1 passed" in text
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


BUSY = """
import ctypes, signal, pytest
@pytest.mark.timeout(1)
def test_never_lets_go():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    ctypes.PyDLL(None).sleep(900)
def test_goes_on(): pass
"""


def test_a_test_that_keeps_pythons_lock_costs_its_worker_only(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, BUSY, "-n", "1", TOOLREST_TEST_GRACE="1")
    assert code == 1, text
    assert "crashed while running 'test_x.py::test_never_lets_go'" in text
    assert "1 passed" in text
