"""A home in which something is not what it was: no traceback, and nothing that waits for ever."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.cli.app import app

HOME = Path(__file__).parents[1] / "data" / "home-0.2"
SESSION = (
    "sessions/2026/11/16/rollout-2026-11-16T21-56-49-98d72600-3e65-4c74-860d-b0a4ee67c9f7.jsonl"
)
TOOLREST = str(Path(sys.executable).parent / "toolrest")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    shutil.copytree(HOME, path)
    monkeypatch.setenv("TOOLREST_HOME", str(path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return path


def run(*words: str) -> Result:
    """A command that may fail, but only by an error of ours."""
    done = CliRunner().invoke(app, words)
    error = done.exception
    assert error is None or isinstance(error, SystemExit) or _is_ours(error), done.exc_info
    return done


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.startswith("toolrest.")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (SESSION, ("sessions",)),
        (SESSION, ("gc",)),
        (SESSION, ("sessions", "export", "98d72600")),
        ("rules/default.rules", ("policy", "explain", "ls")),
        ("audit/odd.jsonl", ("audit", "verify")),
        ("audit/odd.jsonl", ("audit", "show")),
        ("approvals/a262a9fbe1c7.json", ("approvals", "list")),
        ("grants.json", ("grants", "list")),
        ("AGENTS.md", ("call", "list_dir", '{"dir_path": "/"}')),
        ("run/mountpoints/x.record", ("gc",)),
        ("run/patches/x.patch", ("gc",)),
        ("checkpoints", ("gc",)),
    ],
)
@pytest.mark.parametrize("kind", ["fifo", "dangling"])
def test_what_is_no_file_is_not_waited_for(
    home: Path, name: str, words: tuple[str, ...], kind: str
) -> None:
    path = home / name
    if name == "checkpoints":
        path = Path(Checkpoints(str(home), ".")._journal.folder, "journal.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path, 0o600)
    else:
        path.symlink_to("/nowhere/at/all")
    run(*words)


@pytest.mark.parametrize(
    "line",
    ["[1]", "7", '"x"', "null", '{"t": "open"}', '{"t": "step", "c": {"a": 7}}', "[" * 99999],
)
@pytest.mark.parametrize("words", [("undo", "--list"), ("gc",)])
def test_a_journal_of_undo_with_other_json_is_named(
    home: Path, tmp_path: Path, line: str, words: tuple[str, ...]
) -> None:
    work = tmp_path / "work"
    checkpoints = Checkpoints(str(home), str(work))
    (work / "a").write_text("a")
    checkpoints.end(checkpoints.begin())
    (journal,) = home.glob("checkpoints/*/journal.jsonl")
    journal.write_text(journal.read_text() + line + "\n")
    done = CliRunner().invoke(app, words)
    said = done.output + str(done.exception)
    assert "journal.jsonl is damaged" in said
    assert "move that folder away" in said


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("most", [14, 16, 20])
def test_too_few_open_files_are_named(tmp_path: Path, most: int) -> None:
    line = (
        f'ulimit -n {most}; exec "$0" call exec_command \'{{"cmd": "echo hi"}}\' -s workspace-write'
    )
    done = subprocess.run(
        ["/bin/sh", "-c", line, TOOLREST], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert "Too many open files" in said
    assert "Invalid argument" not in said
    assert "Traceback" not in said
