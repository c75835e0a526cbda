"""The rig that the tests run in: what is skipped and said, what hangs, where it can be run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine import REASONS, REPOSITORY
from tests.watchdog import descendants

CONTAINER = str(REPOSITORY / "tests" / "plain_container.py")
BESIDE = Path(sys.executable).parent
LANDLOCK = pytest.param(True, marks=pytest.mark.needs("landlock"))


def run_tests(folder: Path, text: str, *options: str, **env: str) -> tuple[int, str]:
    """Run a test file under the same conftest; the exit code and all that was printed."""
    (folder / "conftest.py").write_text((REPOSITORY / "tests" / "conftest.py").read_text())
    (folder / "pytest.ini").write_text(
        "[pytest]\ntimeout = 60\nasyncio_default_fixture_loop_scope = function\n"
        "markers = needs(name): what it needs\n"
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


SKIPS = """
import pytest
from tests import machine
machine.known(dict.fromkeys(machine.REASONS, False) | {"namespaces": True})
@pytest.mark.parametrize("n", range(3))
@pytest.mark.needs("namespaces")
def test_it(n): pass
@pytest.mark.needs("landlock")
def test_other(): pass
"""


def test_what_the_machine_lacks_is_skipped_and_counted_in_the_last_line(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, SKIPS, TOOLREST_TEST_FULL="0")
    last = text.strip().splitlines()[-1]
    assert code == 0, text
    assert last.startswith(f"tests: 1 passed, 0 failed, 3 skipped (3: {REASONS['namespaces']})")
    assert last.endswith("minutes")


def test_a_full_run_that_skips_a_test_fails(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, SKIPS, TOOLREST_TEST_FULL="1")
    assert (code, "3 skipped; a full run skips nothing" in text) == (1, True), text


HANGS = """
import subprocess, sys, pytest
CHILD = "import os, signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32));"
CHILD += "os.setsid(); print(os.getpid(), flush=True); time.sleep(900)"
@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
    open("pid", "wb").write(process.stdout.readline())
    yield process
    process.stdout.read()  # waits for as long as the child lives
    process.wait()
@pytest.mark.timeout(3)
def test_hangs(child): child.wait()
def test_goes_on(): pass
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_hangs_is_ended_with_its_children(tmp_path: Path, workers: str) -> None:
    code, text = run_tests(tmp_path, HANGS, "-n", workers, TOOLREST_TEST_GRACE="2")
    assert code == 1, text
    assert "FAILED test_x.py::test_hangs" in text
    assert "watchdog: test_x.py::test_hangs hangs; its processes are killed" in text
    assert "tests: 1 passed" in text
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert not descendants(os.getpid()) or "sleep(900)" not in text


SWALLOWS = """
import subprocess, pytest
from contextlib import suppress
@pytest.mark.timeout(1)
def test_swallows():
    child = subprocess.Popen(["sleep", "900"])
    with suppress(BaseException):
        child.wait()
    child.wait()
"""


@pytest.mark.timeout(300)
def test_a_test_that_only_ends_because_its_child_was_killed_fails(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, SWALLOWS, TOOLREST_TEST_GRACE="1")
    assert code == 1, text
    assert "it hung, and its processes were killed" in text


BUSY = """
import ctypes, signal, pytest
@pytest.mark.timeout(1)
def test_never_lets_go():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    ctypes.PyDLL(None).sleep(900)
def test_goes_on(): pass
"""


@pytest.mark.timeout(300)
def test_a_test_that_keeps_pythons_lock_costs_its_worker_only(tmp_path: Path) -> None:
    code, text = run_tests(tmp_path, BUSY, "-n", "1", TOOLREST_TEST_GRACE="1")
    assert code == 1, text
    assert "crashed while running 'test_x.py::test_never_lets_go'" in text
    assert "1 passed" in text


def in_container(*command: str, landlock: bool, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the rights of a plain container."""
    options = [] if landlock else ["--no-landlock"]
    return subprocess.run(
        [sys.executable, CONTAINER, *options, "--", *command],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


@pytest.mark.parametrize("landlock", [LANDLOCK, False])
def test_a_plain_container_can_do_no_more_than_docker_lets_it(
    tmp_path: Path, landlock: bool
) -> None:
    code = (
        "import os; from tests import machine\n"
        "tries = ('unshare -Ur true', 'unshare -m true', 'mount -t tmpfs x /mnt')\n"
        "print([os.system(line + ' 2>&-') == 0 for line in tries], machine.lacking())"
    )
    done = in_container(sys.executable, "-c", code, landlock=landlock, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[False, False, False]")
    assert "'namespaces': True" in done.stdout
    assert f"'landlock': {not landlock}" in done.stdout


@pytest.mark.parametrize(
    "landlock", [pytest.param(True, marks=pytest.mark.needs("landlock")), False]
)
def test_the_demo_works_in_a_plain_container_and_says_what_is_open(
    tmp_path: Path, landlock: bool
) -> None:
    done = in_container(str(BESIDE / "toolrest"), "demo", landlock=landlock, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout[: done.stdout.index("> The tests of this project")]
    if landlock:
        assert first.startswith("sandbox: landlock; not everything is enforced:\n")
        assert "  reads: hidden files inside a writable root, such as .env, can be read" in first
    else:
        assert first.startswith("sandbox: none works here:\n  bubblewrap")
        assert "external mode" in first
        assert 'sandbox_mode = "danger-full-access"' in first
    assert "SHOP_API_KEY=[redacted:SHOP_API_KEY]" in done.stdout
    assert "Nothing hides .env from commands on this machine" in done.stdout
    assert "Both tests pass now" in done.stdout


def test_without_a_sandbox_commands_are_refused_with_the_setting_that_allows_them(
    tmp_path: Path,
) -> None:
    toolrest = str(BESIDE / "toolrest")
    call = ("call", "exec_command", '{"cmd": "echo ran"}', "-C", str(tmp_path))
    refused = in_container(toolrest, *call, landlock=False, cwd=tmp_path)
    assert refused.returncode != 0
    assert "ran" not in refused.stdout.split()
    assert 'sandbox_mode = "danger-full-access"' in refused.stdout + refused.stderr
    allowed = in_container(
        toolrest, *call, "-s", "danger-full-access", landlock=False, cwd=tmp_path
    )
    assert (allowed.returncode, "ran" in allowed.stdout.split()) == (0, True), allowed.stdout


@pytest.mark.needs("landlock")
def test_doctor_says_why_a_session_would_use_nothing(tmp_path: Path) -> None:
    toolrest = str(BESIDE / "toolrest")
    around = str(Path(sys.prefix).parent)  # the folder that Toolrest's own environment lies in
    done = in_container(toolrest, "doctor", "-C", around, landlock=True, cwd=tmp_path)
    assert done.returncode == 1
    after = done.stdout[done.stdout.index("a session uses: nothing; commands are refused\n") :]
    assert "\n  because of bubblewrap (bundled): " in after
    assert f"\n  because of landlock: own_files: {sys.prefix}" in after
    assert "reads: partial" in done.stdout


@pytest.mark.needs("namespaces")
def test_the_demo_is_unconfined_only_where_no_sandbox_works(tmp_path: Path) -> None:
    toolrest = str(BESIDE / "toolrest")
    done = subprocess.run(
        [toolrest, "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": sys.prefix},  # which no command may write
        check=False,
    )
    assert done.returncode != 0
    assert "a writable root lies in Toolrest's own files" in done.stderr
    assert "external" not in done.stdout


@pytest.mark.needs("landlock")
def test_doctor_knows_what_the_settings_require(tmp_path: Path, toolrest_home: Path) -> None:
    (toolrest_home / "config.toml").write_text(
        '[sandbox]\nrequire = ["writes", "network", "own_files", "protected_paths"]\n'
    )
    toolrest = str(BESIDE / "toolrest")
    done = in_container(toolrest, "doctor", "-C", str(tmp_path), landlock=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "\n  because of landlock: protected_paths: " in done.stdout
    (toolrest_home / "config.toml").write_text('sandbox_mode = "danger-full-access"\n')
    done = in_container(toolrest, "doctor", "-C", str(tmp_path), landlock=False, cwd=tmp_path)
    assert done.returncode == 0
    assert "commands run unconfined" in done.stdout
