"""Checks of tasks: their scores, and the sandbox that they run in."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import Bench, worker
from tests.batch.test_tasks import repository

from toolrest.batch import attempt as attempt_module


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_the_score_is_the_whole_last_line(bench: Callable[..., Bench]) -> None:
    cases = {
        r"printf '12 passed\nfailures: 0\n'": 1.0,
        "echo elapsed 0.25": 1.0,
        r"printf 'done\n 0.25 \n\n'": 0.25,
        "echo 0.25; echo warning 1 >&2": 0.25,
        "echo 7": 1.0,
        "echo nan": 1.0,
        "true": 1.0,
        "echo 0.25; exit 3": 0.0,
        "yes 0.75 | head -c 3000000; echo; echo 0.5": 0.5,
    }
    here = bench(worker(1))
    rows = [{"id": f"task-{at}", "prompt": f"task-{at}", "check": c} for at, c in enumerate(cases)]
    here.file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert here.run("-j", "2").code == 0
    found = {rows[int(name[5:])]["check"]: row for name, row in here.results().items()}
    assert {check: row["check"]["score"] for check, row in found.items()} == cases
    output = (here.store / "tasks" / f"task-{len(cases) - 1}" / "check.txt").read_bytes()
    assert output.startswith(b"0.75\n")
    assert output.endswith(b"\n0.5\n")
    assert b"bytes left out" in output
    assert len(output) < attempt_module._MOST_CHECK_OUTPUT + 100


def check(bench: Callable[..., Bench], command: str, settings: str = "", **more: Any) -> Any:
    """What a check with these settings says, and what stands in its output."""
    here = bench(worker(1))
    config = here.desk.home / "config.toml"
    config.write_text(settings + config.read_text())
    (here.desk.home / "work.config.toml").write_text('sandbox_mode = "workspace-write"\n')
    here.tasks(1, check=command, **more)
    ran = here.run()
    assert ran.code == 0, ran.err
    return here.results()["task-0"]["check"]


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(
    ("settings", "more", "may_write"),
    [
        ('sandbox_mode = "read-only"\n', {}, False),
        ('sandbox_mode = "read-only"\n', {"profile": "work"}, True),
        ('sandbox_mode = "read-only"\n', {"sandbox": "workspace-write"}, True),
        ('sandbox_mode = "workspace-write"\n', {}, True),
        ('sandbox_mode = "workspace-write"\n', {"sandbox": "read-only"}, False),
    ],
)
def test_a_check_may_write_where_the_session_could(
    bench: Callable[..., Bench], settings: str, more: dict[str, str], may_write: bool
) -> None:
    found = check(bench, "touch made", settings, **more)
    assert (found["score"], found["exit_code"] == 0) == (float(may_write), may_write), found


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_check_of_a_worktree_may_write(bench: Callable[..., Bench], tmp_path: Path) -> None:
    repository(tmp_path / "repo")
    mode = 'sandbox_mode = "read-only"\n'
    assert check(bench, "touch made", mode, repo=str(tmp_path / "repo"))["score"] == 1.0


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("profile", [None, "open"])
def test_a_check_reaches_what_the_session_could(
    bench: Callable[..., Bench], profile: str | None
) -> None:
    here = bench(worker(1))
    here.desk.home.joinpath("open.config.toml").write_text(
        "[sandbox_workspace_write]\nnetwork_access = true\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        here.tasks(1, check=f'python3 -c "{code}"', sandbox="workspace-write", profile=profile)
        assert here.run().code == 0
    found = here.results()["task-0"]["check"]
    assert found["score"] == float(profile is not None), found
