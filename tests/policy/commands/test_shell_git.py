"""A look at a booby-trapped repository: with git disarmed none of its programs runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from toolrest.policy.commands.git import LISTING, disarmed_git, listed_names
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
    "git describe --always",
    "git diff --ignore-submodules=dirty",
    "git ls-files -m -o",
    "git tag -n3",
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

    def disarmed(self) -> dict[str, str]:
        """The environment for git that only looks, made as for a command."""
        done = subprocess.run(
            ["sh", "-c", LISTING],
            cwd=self.folder,
            env=self.env | (disarmed_git() or {}),
            capture_output=True,
            check=True,
        )
        env = disarmed_git(listed_names(done.stdout) or ())
        assert env is not None
        return env

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
    env = trapped.disarmed()
    trapped.sprung()
    for line in LOOKS:
        verdict = judge(line, cwd=str(trapped.folder))
        assert verdict.kind == CommandClass.SAFE
        assert verdict.needs_disarmed_git
        trapped.git(*line.split()[1:], env=env)
        assert trapped.sprung() == set(), line


def test_disarmed_git_still_shows_what_there_is_to_see(trapped: Trapped) -> None:
    env = trapped.disarmed()
    assert "a.trap" in trapped.git("status", "--short", env=env)
    assert "+two" in trapped.git("diff", env=env)
    assert "+one" in trapped.git("log", "-p", env=env)


def test_a_repository_without_traps_works_as_ever(trapped: Trapped) -> None:
    plain = trapped.folder.parent / "plain"
    trapped.git("clone", "-q", str(trapped.folder), str(plain))
    trapped.folder = plain
    (plain / "a.trap").write_text("one\nthree\n")
    assert "+three" in trapped.git("diff", env=trapped.disarmed())
    assert "first" in trapped.git("log", env=trapped.disarmed())
    assert "a.trap" in trapped.git("status", "-s", env=trapped.disarmed())


def test_folders_are_named_where_git_looks() -> None:
    verdict = judge("cd sub && git status; git log", cwd="/w")
    assert verdict.git_folders == ("/w/sub", "/w")
    assert judge("cd $X && git status", cwd="/w").kind == CommandClass.RUNS


def _with_submodule(trapped: Trapped, tmp_path: Path) -> None:
    """A submodule whose own configuration has the traps, and which wants to be looked into."""
    (tmp_path / "inner").mkdir()
    inner = Trapped(tmp_path / "inner")
    trapped.git("-c", "protocol.file.allow=always", "submodule", "add", str(inner.folder), "sub")
    trapped.git("commit", "-qm", "with a submodule")
    shutil.copy(inner.folder / ".git/config", trapped.folder / ".git/modules/sub/config")
    (trapped.folder / "sub/a.trap").write_text("one\nthree\n")
    os.utime(trapped.folder / "sub/a.trap", (1, 1))
    trapped.git("config", "-f", ".gitmodules", "submodule.sub.ignore", "none")
    trapped.git("config", "diff.submodule", "diff")
    trapped.git("config", "status.submoduleSummary", "true")
    trapped.git("config", "submodule.recurse", "true")
    trapped.markers = inner.markers


@pytest.mark.parametrize("kept", ["worktree", "index", "elsewhere"])
def test_nothing_of_a_submodule_runs_once_git_is_disarmed(
    trapped: Trapped, tmp_path: Path, kept: str
) -> None:
    """On the tree before this the filters that a submodule's own settings name were run."""
    _with_submodule(trapped, tmp_path)
    if kept == "index":
        trapped.git("add", ".gitmodules")
        (trapped.folder / ".gitmodules").unlink()
    elif kept == "elsewhere":
        folder = trapped.folder.rename(tmp_path / "tree\n")
        trapped.folder.mkdir()
        (folder / ".git").rename(trapped.folder / ".git")
        trapped.git("config", "core.worktree", f"{tmp_path}/tree\n")
        module = trapped.folder / ".git/modules/sub"
        (folder / "sub/.git").write_text(f"gitdir: {module}\n")
        trapped.git("config", "-f", str(module / "config"), "core.worktree", f"{folder}/sub")
    trapped.sprung()
    trapped.git("status")
    assert trapped.sprung(), "the traps are no traps"
    env = trapped.disarmed()
    for line in LOOKS:
        assert judge(line, cwd=str(trapped.folder)).kind == CommandClass.SAFE
        trapped.git(*line.split()[1:], env=env)
        assert trapped.sprung() == set(), line


@pytest.mark.parametrize(
    "line",
    ["git diff --ignore-submodules=none", "git diff --submodule=diff", "git describe --dirty",
     "git log --remerge-diff", "git log --diff-merges=remerge", "git ls-files --recurse-submodules",
     "git diff -U --output=x", "git log -U --output=x", "git diff -U3x", "git tag -n -d v1",
     "git tag -n -f v1", "git log --author --output=x", "git branch --contains -D"],
)  # fmt: skip
def test_what_looks_into_submodules_or_takes_its_words_otherwise_is_no_look(line: str) -> None:
    """On the tree before this each of them counted as a look."""
    assert judge(line, cwd="/w").kind == CommandClass.RUNS


def test_a_missing_object_is_not_fetched(trapped: Trapped, tmp_path: Path) -> None:
    """On the tree before this git asked a promisor remote, and ran what its settings name."""
    marker = tmp_path / "fetched"
    trapped.git("config", "remote.origin.url", str(tmp_path))
    trapped.git("config", "remote.origin.uploadpack", f"touch {marker};")
    trapped.git("config", "remote.origin.promisor", "true")
    trapped.git("config", "core.repositoryFormatVersion", "1")
    trapped.git("config", "extensions.partialClone", "origin")
    blob = trapped.git("rev-parse", "HEAD:a.trap").strip()
    (trapped.folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    trapped.git("cat-file", "-p", blob)
    assert marker.exists()
    marker.unlink()
    env = trapped.disarmed()
    assert env["GIT_NO_LAZY_FETCH"] == "1"
    trapped.git("cat-file", "-p", blob, env=env)
    assert not marker.exists()


@pytest.mark.parametrize("output", [b"core.bare\0", b"toolrest.disarmed\0filter.\xff.clean\0"])
def test_a_listing_that_cannot_be_overruled_is_none(output: bytes) -> None:
    """On the tree before this an old git, or a name that is no UTF-8, counted as disarmed."""
    assert listed_names(output) is None


def test_more_programs_than_an_environment_takes_cannot_be_overruled() -> None:
    assert disarmed_git(f"filter.f{number}.clean" for number in range(5_000)) is None
