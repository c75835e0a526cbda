"""Which backend is taken, and that nothing ever runs bare by accident (R-15, R-16)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolrest.errors import ConfigError
from toolrest.policy.verdict.path_hijack import path_entries_inside
from toolrest.process.command import Command
from toolrest.process.helper.tree import alive
from toolrest.sandbox import confine
from toolrest.sandbox import programs as own_programs
from toolrest.sandbox.backends import probe as backends
from toolrest.sandbox.backends.probe import run_probe
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.policy import CONTROLS, Mode, SandboxPolicy
from toolrest.sandbox.programs import find_program


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    (tmp_path / "ws").mkdir()
    return SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "session"))


@pytest.fixture
def command(policy: SandboxPolicy) -> Command:
    return Command(("/bin/true",), policy.workspace, {"PATH": "/usr/bin:/bin"})


@pytest.fixture
def bwrap(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bubblewraps that are found; a test may change the list."""
    found = list(backends.bwrap_programs(()))
    monkeypatch.setattr(confine, "bwrap_programs", lambda roots: found)
    return found


def failing(path: Path) -> str:
    path.write_text("#!/bin/sh\necho 'bwrap: no namespaces for you' >&2\nexit 1\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.needs("namespaces")
def test_bubblewrap_comes_first(policy: SandboxPolicy, command: Command) -> None:
    confined = SessionSandbox(policy).confine(command)
    assert confined.backend == "bubblewrap"
    assert set(confined.controls) == set(CONTROLS)
    of_this_machine = "unix_sockets: sockets beneath "  # where its own mounts prevent an overlay
    assert [gap for gap in confined.gaps if not gap.startswith(of_this_machine)] == []
    assert run_probe(confined.command) == ""
    confined.release()
    confined.release()


@pytest.mark.needs("landlock")
def test_a_bubblewrap_that_fails_leads_to_landlock(
    policy: SandboxPolicy, command: Command, bwrap: list[str], tmp_path: Path
) -> None:
    bwrap[:] = [failing(tmp_path / "bwrap")]
    sandbox = SessionSandbox(policy)
    confined = sandbox.confine(command)
    assert confined.backend == "landlock"
    assert confined.command.landlock is not None
    assert confined.command.seccomp is not None
    assert any("protected_paths" in gap for gap in confined.gaps)
    assert [probe.works for probe in sandbox.tried] == [False, False, True]
    assert "no namespaces for you" in sandbox.tried[0].detail


@pytest.mark.needs("namespaces")
def test_a_second_bubblewrap_is_tried_before_landlock(
    policy: SandboxPolicy, command: Command, bwrap: list[str], tmp_path: Path
) -> None:
    bwrap.insert(0, failing(tmp_path / "bwrap"))
    assert SessionSandbox(policy).confine(command).backend == "bubblewrap"


def test_nothing_works_means_nothing_runs(
    policy: SandboxPolicy,
    command: Command,
    bwrap: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bwrap[:] = [failing(tmp_path / "bwrap")]
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    with pytest.raises(SandboxUnavailable) as caught:
        SessionSandbox(policy).confine(command)
    assert "no namespaces for you" in str(caught.value)
    assert "Landlock version 0" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hints == ("`toolrest doctor` says what is missing.",)


def test_not_installed_is_said(
    policy: SandboxPolicy, command: Command, bwrap: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bwrap.clear()
    monkeypatch.setattr(landlock, "abi", lambda: 2)
    with pytest.raises(SandboxUnavailable, match="not installed"):
        SessionSandbox(policy).confine(command)


@pytest.mark.needs("landlock")
@pytest.mark.parametrize("control", ["protected_paths", "pids"])
def test_what_is_required_and_missing_refuses(
    tmp_path: Path, command: Command, bwrap: list[str], control: str
) -> None:
    bwrap.clear()
    strict = SandboxPolicy.build(
        str(tmp_path / "ws"),
        str(tmp_path / "session"),
        require=("writes", "network", control),  # type: ignore[arg-type]
    )
    with pytest.raises(SandboxUnavailable, match=control):
        SessionSandbox(strict).confine(command)


@pytest.mark.needs("landlock")
def test_landlock_refuses_when_its_own_files_could_be_changed(
    tmp_path: Path, bwrap: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-23: what cannot be protected there must not lie there."""
    bwrap.clear()
    ws = tmp_path / "ws"
    (ws / "venv").mkdir(parents=True)
    monkeypatch.setattr(own_programs, "own_files", lambda roots: (str(ws / "venv"),))
    policy = SandboxPolicy.build(str(ws), str(tmp_path / "session"))
    with pytest.raises(SandboxUnavailable, match="part of Toolrest"):
        SessionSandbox(policy).choose()


@pytest.mark.parametrize(
    ("mode", "backend"), [("danger-full-access", "none"), ("external", "external")]
)
def test_modes_that_confine_nothing_say_so(
    tmp_path: Path, command: Command, mode: Mode, backend: str
) -> None:
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "session"), mode=mode)
    confined = SessionSandbox(policy).confine(command)
    assert (confined.command, confined.backend) == (command, backend)


def test_a_machine_that_is_not_prepared_says_what_to_do(policy: SandboxPolicy) -> None:
    with pytest.raises(SandboxUnavailable, match=r"toolrest vm prepare|x86-64"):
        SessionSandbox(policy, backend="vm").choose()


def test_a_backend_that_needs_something_says_what(policy: SandboxPolicy) -> None:
    with pytest.raises(ConfigError, match="needs"):
        SessionSandbox(policy, backend="chroot")


def test_programs_are_never_taken_from_a_writable_root(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "bin"
    for folder in (root, elsewhere):
        folder.mkdir()
        failing(folder / "prog")
    (elsewhere / "toolrest-link").symlink_to(root / "prog")
    (tmp_path / "linked").symlink_to(root)
    path = f"{root}:{tmp_path / 'linked'}:.::{elsewhere}"
    assert find_program("prog", (str(root),), path) == str(elsewhere / "prog")
    assert find_program("prog", (), path) == str(root / "prog")
    assert find_program("toolrest-link", (str(root),), path) is None
    assert path_entries_inside((str(root),), path) == (
        str(root),
        str(tmp_path / "linked"),
        ".",
    )


@pytest.mark.needs("sandbox")
def test_probing_costs_nothing_the_second_time(
    policy: SandboxPolicy, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = SessionSandbox(policy)
    sandbox.confine(command).release()
    monkeypatch.setattr(subprocess, "Popen", None)
    sandbox.confine(command).release()


def test_importing_is_light() -> None:
    code = (
        "import sys; import toolrest.sandbox.confine;"
        "print([n for n in ('pydantic', 'asyncio', 'hypothesis') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_probe_that_does_not_end_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file, real = tmp_path / "pid", subprocess.Popen.communicate

    def communicate(child: Any, timeout: float) -> Any:
        """Its time is over once it has started another, however long that takes here."""
        until = time.monotonic() + 60
        while not (pid_file.exists() and pid_file.read_text().endswith("\n")):
            assert time.monotonic() < until
            time.sleep(0.01)
        return real(child, timeout=timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
    monkeypatch.setattr(backends, "_PATIENCE", 0.3)
    line = "sleep 900.25 & echo $! > pid; exec sleep 900.25"
    command = Command(("/bin/sh", "-c", line), str(tmp_path), {"PATH": "/usr/bin:/bin"})
    assert "did not finish" in backends.run_probe(command)
    pid = int(pid_file.read_text())
    until = time.monotonic() + 60
    while alive(pid):  # killed, which takes its moment
        assert time.monotonic() < until
        time.sleep(0.01)
