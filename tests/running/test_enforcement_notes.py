"""What sandbox and limits leave open is said once, with the first result that it concerns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import toolrest.running.runner
from toolrest.agent.setup.runner import standalone_runner
from toolrest.config.loader import default_config
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.running.confinement import EnforcementNotes
from toolrest.sandbox.backends.engine import Enforced, all_full
from toolrest.sandbox.confine import Confined

COMMAND = Command(("true",), "/", {})


def test_only_what_is_missing_and_only_once() -> None:
    controls = all_full() | {
        "pids": Enforced("none", "processes outside can be seen"),
        "writes": Enforced("partial", "modes can be changed"),
    }
    confined = Confined(COMMAND, "landlock", controls)
    gaps = EnforcementNotes(Limits())
    said = "the landlock sandbox does not enforce pids: processes outside can be seen"
    assert gaps.unreported(confined, ()) == (said,)
    assert gaps.unreported(confined, ()) == ()
    assert gaps.unreported(Confined(COMMAND, "bubblewrap", all_full()), ()) == ()


def test_containers_hold_limits_by_themselves() -> None:
    gaps = EnforcementNotes(Limits(processes=1))
    assert gaps.unreported(Confined(COMMAND, "docker", all_full()), ()) == ()


@pytest.mark.needs("landlock")
async def test_landlock_says_what_it_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        toolrest.running.runner, "EnforcementNotes", EnforcementNotes
    )  # on a machine where tests silence it
    workspace = tmp_path / "work"
    workspace.mkdir()
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    config = default_config({}, workspace=workspace, env=env)
    runner = standalone_runner(config, env, backend="landlock")
    try:
        first, second = [
            await runner.run(("true",), str(workspace), seconds=10, outside=False) for _ in "12"
        ]
    finally:
        await runner.aclose()
    assert first.backend == "landlock"
    named = {words.partition("enforce ")[2].partition(":")[0] for words in first.gaps}
    assert named == {"pids", "protected_paths"}
    assert second.gaps == ()
