"""A look at a booby-trapped repository: with git disarmed none of its programs runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from toolrest.policy.commands.git import disarmed_git
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git on the PATH")

LOOKS = [
    "git status",
    "git status --short",
    "git diff",
    "git diff --stat",
    "git diff --cached",
    "git log -p -2",
    "git log --format=%h",
    "git show HEAD",
    "git blame a.trap",
    "git branch -a",
    "git stash list",
    "git describe --always --dirty",
    "git grep -n one",
    "git ls-files",
]


class Trapped:
    """A repository whose configuration names programs that leave a marker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repo"
        self.markers = folder / "markers"
        self.folder.mkdir()
        self.markers.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.com",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.com",
        }
        self.git("init", "-q")
        (self.folder / "a.trap").write_text("one\n")
        (self.folder / ".gitattributes").write_text("*.trap diff=trap filter=trap\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        for number, (key, tail) in enumerate(TRAPS.items()):
            script = folder / f"trap{number}"
            script.write_text(f"#!/bin/sh\ntouch {self.markers}/{key}\n{tail}\n")
            script.chmod(0o755)
            self.git("config", key, str(script))
        self.git("config", "log.showSignature", "true")
        (self.folder / "a.trap").write_text("one\ntwo\n")
        os.utime(self.folder / "a.trap", (1, 1))

    def git(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env=self.env | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return done.stdout

    def sprung(self) -> set[str]:
        found = {marker.name for marker in self.markers.iterdir()}
        for marker in self.markers.iterdir():
            marker.unlink()
        return found


TRAPS = {
    "core.fsmonitor": "exit 1",
    "core.pager": "cat",
    "core.editor": "exit 0",
    "core.sshCommand": "exit 1",
    "diff.external": "exit 0",
    "diff.trap.textconv": 'cat "$1"',
    "diff.trap.command": "exit 0",
    "filter.trap.clean": "cat",
    "filter.trap.smudge": "cat",
    "gpg.program": "exit 1",
    "pager.log": "cat",
    "alias.status": "exit 0",
}


@pytest.fixture
def trapped(tmp_path: Path) -> Trapped:
    return Trapped(tmp_path)


def test_the_traps_are_real(trapped: Trapped) -> None:
    trapped.git("status")
    trapped.git("diff")
    trapped.git("config", "--unset", "diff.external")
    trapped.git("config", "--unset", "diff.trap.command")
    trapped.git("diff")
    assert trapped.sprung() >= {
        "core.fsmonitor",
        "diff.trap.command",
        "diff.trap.textconv",
        "filter.trap.clean",
    }


def test_nothing_runs_once_git_is_disarmed(trapped: Trapped) -> None:
    names = trapped.git("config", "--list", "--name-only", "-z").split("\0")
    env = disarmed_git(name for name in names if name)
    trapped.sprung()
    for line in LOOKS:
        verdict = judge(line, cwd=str(trapped.folder))
        assert verdict.kind == CommandClass.SAFE
        assert verdict.needs_disarmed_git
        trapped.git(*line.split()[1:], env=env)
        assert trapped.sprung() == set(), line


def test_disarmed_git_still_shows_what_there_is_to_see(trapped: Trapped) -> None:
    names = trapped.git("config", "--list", "--name-only", "-z").split("\0")
    env = disarmed_git(name for name in names if name)
    assert "a.trap" in trapped.git("status", "--short", env=env)
    assert "+two" in trapped.git("diff", env=env)
    assert "+one" in trapped.git("log", "-p", env=env)


def test_a_repository_without_traps_works_as_ever(trapped: Trapped) -> None:
    plain = trapped.folder.parent / "plain"
    trapped.git("clone", "-q", str(trapped.folder), str(plain))
    trapped.folder = plain
    (plain / "a.trap").write_text("one\nthree\n")
    assert "+three" in trapped.git("diff", env=disarmed_git())
    assert "first" in trapped.git("log", env=disarmed_git())
    assert "a.trap" in trapped.git("status", "-s", env=disarmed_git())


def test_folders_are_named_where_git_looks() -> None:
    verdict = judge("cd sub && git status; git log", cwd="/w")
    assert verdict.git_folders == ("/w/sub", "/w")
    assert judge("cd $X && git status", cwd="/w").kind == CommandClass.RUNS
