"""Git works in the sandbox, and no command can make it run something outside (D-22, R-22)."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Any, Protocol

import pytest

from toolrest.process.command import Command
from toolrest.sandbox.backends.probe import run_probe
from toolrest.sandbox.confine import Confined, SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy


class Person(Protocol):
    place: Path
    workspace: Path

    def do(self, line: str, cwd: Path | None = None) -> str: ...
    def confined(self, *lines: str, **wish: Any) -> list[Any]: ...


COMMIT = "date +%N >> tracked; git add -A && git commit -qm inside && git status --short"
EVIL = "[core]\n fsmonitor = touch {mark}\n hooksPath = /tmp/x"

TRICKS = [
    "echo x > .git/hooks/pre-commit",
    "ln -s /tmp/x .git/hooks/pre-commit",
    "mkdir -p .git/hooks/x",
    "rm -rf .git/hooks && mkdir .git/hooks && touch .git/hooks/x",
    "mv .git/hooks .git/hooks2",
    "echo x >> .git/config",
    "git config core.fsmonitor 'touch /tmp/x'",
    "mv .git/config .git/config2",
    "rm -f .git/config; touch .git/config.x && mv .git/config.x .git/config",
    "ln .git/config linked && echo x >> linked",
    "echo /tmp/evil > .git/commondir",
    "echo /tmp/evil > c && mv -f c .git/commondir",
    "rm -f .git/commondir && echo evil > .git/commondir",
    "echo '* filter=x' > .git/info/attributes",
    "echo '* filter=x' > a && mv -f a .git/info/attributes",
    "mv .git/info .git/info2 && mkdir .git/info && touch .git/info/attributes",
    "mv .git away && mkdir .git",
    "rm -rf .git/hooks .git/config; test ! -e .git/config",
    "mkdir d && mv -T d .git",
    "umount .git/config",
    "git init -q --template=/dev/null . && git config a.b c",
]


FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
ALONE = TRICKS if FULL else random.Random(5).sample(TRICKS, 3)


@pytest.fixture
def clone(person: Person) -> Person:
    person.do(
        "git init -q . && echo 1 > tracked && git add . && git commit -qm 1", person.workspace
    )
    return person


def state(person: Person, folder: Path) -> str:
    """What git would act upon."""
    return person.do(
        "cat .git/config; ls -lA --time-style=+ .git/hooks; ls -ld --time-style=+ .git/hooks;"
        "cat .git/info/*; ls -d .git/c*[gr]",
        folder,
    )


def test_commit_in_a_clone(clone: Person) -> None:
    (first, second) = clone.confined(COMMIT, COMMIT)
    assert (first.code, first.text) == (0, "")
    assert (second.code, second.text) == (0, "")
    assert clone.do("git log --oneline | wc -l; git status --short", clone.workspace) == "3\n"


def test_everyday_git(clone: Person) -> None:
    lines = (
        "git checkout -qb topic && echo 2 > two && git add two && git commit -qm two",
        "git stash list; echo 3 > two; git stash -q; git stash pop -q; git checkout -q two",
        "git checkout -q master 2>/dev/null || git checkout -q main",
        "git merge -q topic && git branch -d topic && git tag v1 && git gc -q && git fsck",
        "git rebase -q HEAD~1 && git log --oneline && git reset -q --hard HEAD~1",
        "git worktree add -q wt && cd wt && echo 4 > four && git add . && git commit -qm four",
    )
    for result in clone.confined(*lines):
        assert result.code == 0, result.text


@pytest.mark.parametrize("trick", ALONE)
def test_tricks_fail(clone: Person, trick: str) -> None:
    before = state(clone, clone.workspace)
    (result,) = clone.confined(trick)
    assert result.code != 0, result.text
    assert state(clone, clone.workspace) == before


@pytest.mark.slow
def test_all_tricks_one_after_the_other(clone: Person) -> None:
    before = state(clone, clone.workspace)
    results = clone.confined(*TRICKS, *TRICKS)
    assert [result.text for result in results[: len(TRICKS)] if result.code == 0] == []
    assert state(clone, clone.workspace) == before
    assert clone.do("git status --short | grep -v '^??' || true", clone.workspace) == ""


def test_worktree(clone: Person) -> None:
    tree = clone.place / "tree"
    clone.do(f"git worktree add -q {tree}", clone.workspace)
    common = clone.workspace / ".git"
    lines = (
        COMMIT,
        f"echo x > {common}/hooks/pre-commit",
        f"echo x >> {common}/config",
        "git config a.b c",
        f"echo /tmp/evil > {common}/commondir",
        f"echo /tmp/evil > {common}/worktrees/tree/commondir",
        f"rm {common}/worktrees/tree/commondir",
        f"mv {common}/worktrees/tree {common}/worktrees/t2",
        f"echo x > {common}/HEAD",
        f"touch {clone.workspace}/outside",
        "echo 'gitdir: /tmp/evil' > .git",
        "rm .git && mkdir .git",
        COMMIT,
    )
    results = clone.confined(*lines, workspace=str(tree))
    assert [result.code == 0 for result in results] == [True] + [False] * 11 + [True]
    assert clone.do("git log --oneline | wc -l", tree) == "3\n"
    assert "worktrees" in clone.do("cat .git", tree)


def test_worktree_that_only_claims_to_be_one(clone: Person) -> None:
    fake = clone.place / "fake"
    clone.do(f"git worktree add -q {clone.place}/real", clone.workspace)
    clone.do(f"mkdir {fake} && cp {clone.place}/real/.git {fake}/.git")
    (result,) = clone.confined(
        f"touch {clone.workspace}/.git/worktrees/real/x", workspace=str(fake)
    )
    assert result.code != 0
    assert "Read-only" in result.text


@pytest.fixture
def super_project(clone: Person) -> Path:
    """A repository with another one as its submodule."""
    path = clone.place / "super"
    clone.do(
        f"git init -q {path} && cd {path} && git commit -q --allow-empty -m 1 &&"
        f" git -c protocol.file.allow=always submodule -q add {clone.workspace} sub &&"
        " git commit -qm sub"
    )
    return path


def test_submodule_as_workspace(clone: Person, super_project: Path) -> None:
    module = super_project / ".git/modules/sub"
    lines = (
        COMMIT,
        f"echo x > {module}/hooks/pre-commit",
        f"echo x >> {module}/config",
        f"echo x > {module}/commondir",
        f"touch {super_project}/.git/x",
        f"touch {super_project}/x",
        "rm .git",
    )
    results = clone.confined(*lines, workspace=str(super_project / "sub"))
    assert [result.code == 0 for result in results] == [True] + [False] * 6


@pytest.mark.slow
def test_super_project_as_workspace(clone: Person, super_project: Path) -> None:
    lines = (
        f"cd sub && {COMMIT}",
        COMMIT,
        "echo x > .git/modules/sub/hooks/post-checkout",
        "echo x >> .git/modules/sub/config",
        "echo x > .git/modules/sub/commondir",
        "mv .git/modules/sub .git/modules/s2",
        "mv .git/modules .git/m2",
        "rm sub/.git && mkdir sub/.git",
        "mv sub sub2 && mkdir -p sub/.git",
    )
    results = clone.confined(*lines, workspace=str(super_project))
    assert [result.code == 0 for result in results] == [True, True] + [False] * 7


def test_init_where_there_is_no_repository_is_refused(person: Person) -> None:
    init, after = person.confined("git init -q .", "ls -A")
    assert init.code != 0
    assert list(person.workspace.iterdir()) == []
    assert after.code == 0


LINKED = {
    ".git/hooks": [
        "rm .git/hooks",
        "ln -sfn ../d .git/hooks",
        "mv -T .git/hooks away",
        "echo x > real/pre-commit",
        "mv real r2 && mkdir real",
    ],
    ".git/config": ["rm .git/config", "echo x > c && mv c .git/config", "echo x >> real"],
    ".git/modules": ["rm .git/modules", "mkdir -p real/sub/hooks"],
}


@pytest.mark.parametrize("link", sorted(LINKED))
def test_git_through_links_works_and_nobody_replaces_them(clone: Person, link: str) -> None:
    clone.do(f"mkdir -p d .git/modules; mv {link} real && ln -s $PWD/real {link}", clone.workspace)
    before = clone.do(f"readlink {link}; ls -lAR real; cat .git/config", clone.workspace)
    results = clone.confined(COMMIT, *LINKED[link])
    assert [result.code == 0 for result in results] == [True] + [False] * len(LINKED[link]), results
    assert clone.do(f"readlink {link}; ls -lAR real; cat .git/config", clone.workspace) == before


@pytest.mark.parametrize(
    "line",
    [
        "mv .git real && ln -s real .git",
        "mkdir other && echo ../other > .git/commondir",
        "mkdir other && ln -s ../pointer .git/commondir && echo ../other > pointer",
    ],
)
def test_where_git_keeps_its_parts_must_be_known(clone: Person, line: str) -> None:
    clone.do(line, clone.workspace)
    (result,) = clone.confined("touch ran")
    assert "symbolic link" in result.refused or "points elsewhere" in result.refused
    assert not (clone.workspace / "ran").exists()


@pytest.mark.slow
def test_links_of_submodules_stay(clone: Person, super_project: Path) -> None:
    clone.do("mv .git/modules/sub store && ln -s ../../store .git/modules/sub", super_project)
    clone.do("mv sub/.git pointer && ln -s ../pointer sub/.git", super_project)
    lines = ("rm .git/modules/sub", "touch store/hooks/x", "rm sub/.git", "echo x > pointer")
    results = clone.confined(*lines, workspace=str(super_project))
    assert [result.code == 0 for result in results] == [False] * 4, results


EVIL_HERE = "printf '[core]\\n fsmonitor = /bin/evil\\n' >> {config}"


def evil(clone: Person, folder: Path) -> str:
    return clone.do("git config core.fsmonitor || echo none", folder).strip()


@pytest.mark.slow
def test_a_submodule_does_not_stop_to_be_one(clone: Person, super_project: Path) -> None:
    module = ".git/modules/sub"
    results = clone.confined(
        f"mv {module}/HEAD {module}/H; chmod 750 .git",
        f"{EVIL_HERE.format(config=f'{module}/config')} && echo wrote",
        f"mv {module}/H {module}/HEAD; ln -s HEAD {module}/H; chmod 755 .git",
        f"{EVIL_HERE.format(config=f'{module}/config')} && echo wrote",
        "echo 'gitdir: ../elsewhere' > sub/.git && echo wrote",
        workspace=str(super_project),
    )
    assert "wrote" not in "".join(result.text for result in results), results
    assert evil(clone, super_project / "sub") == "none"


@pytest.mark.slow
def test_submodules_are_found_among_many_folders(clone: Person, super_project: Path) -> None:
    workspace = str(super_project)
    many = "for i in $(seq 99); do mkdir -p .git/modules/!$i .git/worktrees/!$i; done"
    clone.confined(many, workspace=workspace)
    module = ".git/modules/sub"
    config = EVIL_HERE.format(config=f"{module}/config")
    lines = [f"echo x > {module}/hooks/x", config, "echo x > sub/.git"]
    results = clone.confined(*lines, workspace=workspace)
    assert [result.code == 0 for result in results] == [False] * 3, results
    more = "for i in $(seq 20); do mkdir .git/modules/m$i; touch .git/modules/m$i/HEAD; done"
    clone.do(more, super_project)
    results = clone.confined(*lines, workspace=workspace)
    assert [result.code == 0 for result in results] == [False] * 3, results
    clone.do("mkdir .git/modules/x; cd .git/modules/x; seq 1100 | xargs mkdir", super_project)
    (result,) = clone.confined("true", workspace=workspace)
    assert "too many folders" in result.refused


def test_submodules_of_submodules(clone: Person, super_project: Path) -> None:
    add = f"git -c protocol.file.allow=always submodule -q add {clone.workspace} inner"
    clone.do(f"{add} && git commit -qm 2", super_project / "sub")
    inner = ".git/modules/sub/modules/inner"
    lines = [f"echo x > {inner}/hooks/x", EVIL_HERE.format(config=f"{inner}/config")]
    *results, last = clone.confined(
        *lines, f"cd sub/inner && {COMMIT}", workspace=str(super_project)
    )
    assert [result.code == 0 for result in results] == [False] * 2, results
    assert last.code == 0, last.text


@pytest.mark.slow
@pytest.mark.parametrize("pointer", ["link/store", "d/../link/store", "$PWD/link/store"])
def test_links_in_what_a_pointer_says_stay(clone: Person, pointer: str) -> None:
    clone.do(
        f"mkdir real d; mv .git real/store; ln -s real link; echo gitdir: {pointer} > .git",
        clone.workspace,
    )
    works, *results = clone.confined(
        COMMIT,
        "rm link && mkdir link",
        "ln -sfn d link",
        "mv real r2",
        "mv d d2 || false",
        EVIL_HERE.format(config="real/store/config"),
    )
    assert works.code == 0, works.text
    failed = [result.code != 0 for result in results]
    assert failed == [True, True, True, "d/.." in pointer, True], results


def test_a_linked_config_is_read(clone: Person) -> None:
    """With this setting `config.worktree` counts as well."""
    clone.do(
        "git config extensions.worktreeConfig true; mv .git/config real; ln -s ../real .git/config",
        clone.workspace,
    )
    (result,) = clone.confined("echo x > .git/config.worktree")
    assert result.code != 0


def test_a_repository_made_outside_meanwhile_is_protected(person: Person) -> None:
    """The user may `git init` while the session is idle."""
    line = f"cd {person.workspace} && git init -q . && git commit -q --allow-empty -m 1"
    person.do(line)
    results = person.confined(COMMIT, "echo x > .git/hooks/x", "rm -rf .git/*")
    assert [result.code == 0 for result in results] == [True, False, False]


@pytest.mark.needs("namespaces")
def test_a_part_that_another_session_kept_missing_stays_missing(tmp_path: Path) -> None:
    """A session that begins while another's placeholder is there does not rely on that one."""
    repository = tmp_path / "main"
    git = "git -c user.name=x -c user.email=x@example.org"
    lines = [f"git init -q {repository}", f"cd {repository}"]
    lines += [f"{git} commit -q --allow-empty -m first"]
    lines += [f"git worktree add -q {tmp_path}/{name}" for name in ("one", "two")]
    subprocess.run(["sh", "-ec", "; ".join(lines)], check=True)

    def opened(name: str) -> SessionSandbox:
        policy = SandboxPolicy.build(str(tmp_path / name), str(tmp_path / f"session-{name}"))
        return SessionSandbox(policy, registry=str(tmp_path / "registry"))

    def confined(sandbox: SessionSandbox) -> Confined:
        argv = ("/bin/sh", "-c", "! mkdir -p ../main/.git/modules/x/hooks 2>/dev/null")
        return sandbox.confine(Command(argv, sandbox.policy.workspace, {"PATH": "/usr/bin:/bin"}))

    running = confined(opened("one"))
    second = opened("two")
    second.choose()
    running.release()
    assert not (repository / ".git" / "modules").exists()
    alone = confined(second)
    assert run_probe(alone.command) == ""
    alone.release()
    assert not (repository / ".git" / "modules").exists()
