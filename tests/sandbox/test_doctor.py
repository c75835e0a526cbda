"""What doctor finds, and that it says it plainly."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.backends.test_container import Docker

from toolrest.sandbox import doctor
from toolrest.sandbox.backends.container.engine import ContainerOptions
from toolrest.sandbox.doctor import count_hard_links, examine, lines
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.policy import CONTROLS, SandboxPolicy
from toolrest.sandbox.remedy import Remedy


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    (tmp_path / "ws").mkdir()
    return SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "session"))


@pytest.mark.needs("namespaces")
def test_a_report(policy: SandboxPolicy, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.link(tmp_path / "file", tmp_path / "ws/linked")
    report = examine(policy, str(tmp_path / "registry"))
    by_name = {finding.name: finding for finding in report.findings}
    assert report.chosen.startswith("bubblewrap")
    assert by_name[report.chosen].works
    assert set(by_name[report.chosen].controls) == set(CONTROLS)
    assert by_name["landlock"].open == landlock.open_rows()
    assert {"podman", "docker"} <= set(by_name)
    assert report.hard_links == 1
    text = "\n".join(lines(report))
    for row in (*landlock.open_rows(), *landlock.BROKEN):
        assert row in text
    assert "a session uses: bubblewrap" in text
    assert "files with several names in the writable roots: 1" in text
    assert list((tmp_path / "ws").iterdir()) == [tmp_path / "ws/linked"]


def test_what_is_in_the_way_is_said(
    policy: SandboxPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "bwrap_programs", lambda roots: [])
    monkeypatch.setattr(doctor, "remedy_for", lambda problems: Remedy("it is off", "turn it on"))
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    report = examine(policy, str(tmp_path / "registry"))
    assert report.chosen == ""
    text = "\n".join(lines(report))
    assert "  to do: it is off: turn it on\n" in text
    assert "a session uses: nothing; commands are refused" in text


def test_places_that_a_command_can_write_to(
    policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{policy.workspace}/bin:/usr/bin")
    (tmp_path / "ws/bin").mkdir()
    monkeypatch.syspath_prepend(policy.workspace)
    words = "\n".join(examine(policy, str(tmp_path / "registry")).warnings)
    assert f"PATH has '{policy.workspace}/bin'" in words
    assert f"modules in {policy.workspace}" in words


@pytest.mark.parametrize("works", [True, False])
def test_an_engine_of_another_name(policy: SandboxPolicy, tmp_path: Path, works: bool) -> None:
    engine = Path(Docker(tmp_path, policy.workspace).program).rename(tmp_path / "nerdctl")
    if not works:
        engine.write_text("#!/bin/sh\necho no daemon >&2; exit 1\n")
    options = ContainerOptions(engine=str(engine))
    report = examine(policy, str(tmp_path / "registry"), wanted="docker", container=options)
    assert report.chosen == ("nerdctl" if works else "")
    assert works or "no daemon" in "\n".join(report.why_none)


def test_windows_is_not_supported(policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    report = examine(policy)
    assert "not supported" in "\n".join(lines(report))


def test_counting_stops_somewhere(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert count_hard_links([str(tmp_path)]) == 0
    assert count_hard_links([str(tmp_path)], most=3) == -1
    assert count_hard_links([str(tmp_path / "none")]) == 0


def test_a_folder_that_cannot_be_listed_to_its_end_is_passed_over() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it has ended, and /proc still has it
        assert count_hard_links([f"/proc/{child}/net"]) == 0
    finally:
        os.waitpid(child, 0)


@pytest.mark.needs("landlock")
@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
def test_reads_under_landlock_are_partial(tmp_path: Path, mode: Any) -> None:
    """Failed before: without a writable root they were called full, and names can be listed."""
    (tmp_path / "ws").mkdir()
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "session"), mode=mode)
    report = examine(policy, str(tmp_path / "registry"))
    text = "\n".join(lines(report)).split("\nlandlock: ")[1]
    assert "  reads: partial (" in text.split("\n  network:")[0]
