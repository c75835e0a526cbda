"""No command makes a guard of git's folders go away: not in one session, not over several."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Protocol

import pytest


class Person(Protocol):
    name: str
    place: Path
    workspace: Path

    def do(self, line: str, cwd: Path | None = None) -> str: ...
    def confined(self, *lines: str, **wish: Any) -> list[Any]: ...


CONFIG = "printf '[core]\\n fsmonitor = /bin/evil\\n' >> {}/config"
HOOK = "echo x > {}/hooks/x"
RENAME = "python3 -c 'import os, sys; os.rename(*sys.argv[1:])'"
SUBMODULE = "git -c protocol.file.allow=always submodule -q add"


@pytest.fixture
def upstream(person: Person) -> str:
    person.do("git init -q up && cd up && git commit -q --allow-empty -m 1")
    return str(person.place / "up")


@pytest.fixture
def project(person: Person, upstream: str) -> Person:
    """A repository with two submodules and two worktrees, one of them inside it."""
    person.do(
        f"git init -q . && {SUBMODULE} {upstream} sub && {SUBMODULE} {upstream} libs/inner &&"
        " git commit -qm 1 && git worktree add -q ../w2 && git worktree add -q wt",
        person.workspace,
    )
    return person


TARGETS = [
    HOOK.format(".git"),
    CONFIG.format(".git"),
    "echo x > .git/config.worktree",
    *(line.format(".git/modules/sub") for line in (HOOK, CONFIG)),
    *(line.format(".git/modules/libs/inner") for line in (HOOK, CONFIG)),
    "echo 'gitdir: e' > sub/.git",
    "echo 'gitdir: e' > libs/inner/.git",
    "echo 'gitdir: e' > wt/.git",
    "echo e > .git/worktrees/w2/commondir",
    "echo e > .git/worktrees/wt/gitdir",
    "echo x > .git/worktrees/wt/config.worktree",
    f"{RENAME} .git/modules .git/m",
    f"{RENAME} .git/modules/libs .git/l",
]  # fmt: skip


def held(person: Person, **wish: Any) -> bool:
    """Whether a session runs nothing, or nothing that writes to one of the targets."""
    lines = [f"chmod -R u+rwx .git/modules .git/worktrees sub; {line}" for line in TARGETS]
    results = person.confined(*lines, **wish)
    return all(result.code != 0 for result in results)


@pytest.mark.slow
def test_all_of_it_is_guarded_and_work_goes_on(project: Person) -> None:
    assert held(project)
    commit = "date +%N > f && git add f && git commit -qm inside"
    works = [commit, f"cd sub && {commit}", f"cd libs/inner && {commit}", f"cd wt && {commit}",
             "git worktree add -q more && git worktree remove more"]  # fmt: skip
    for line, result in zip(works, project.confined(*works), strict=True):
        assert result.code == 0, (line, result.text)


HIDING = {
    "no right to look": "chmod 0 .git/modules/sub",
    "no right above": "chmod 0 .git/modules",
    "no right at all": "chmod 0 .git",
    "no right to the checkout": "chmod 0 sub",
    "a loop": "ln -s loop .git/modules/loop; ln -s loop .git/worktrees/loop",
    "without HEAD": "rm .git/modules/sub/HEAD; rm .git/worktrees/*/HEAD; chmod 700 .git",
    "a sign above": "touch .git/modules/libs/HEAD; mkdir .git/modules/libs/objects",
    "a sign on top": "touch .git/modules/HEAD .git/modules/config",
    "many folders": "for i in $(seq 99); do mkdir .git/modules/!$i .git/worktrees/!$i; done",
    "many checkouts": "for i in $(seq 270); do mkdir -p .git/modules/!$i c/$i; touch c/$i/.git;"
    " echo worktree=../../../c/$i > .git/modules/!$i/config; done",
    "a long config": "mkdir .git/modules/z; yes '' | head -c 70000 > .git/modules/z/config",
    "an odd config": "mkdir .git/modules/z; printf 'worktree=a\\0b\\n' > .git/modules/z/config",
    "very deep": "d=.git/modules; for i in $(seq 60); do d=$d/a; mkdir $d; touch $d/HEAD; done",
    "odd names": "cd .git/modules; mkdir \"$(printf '\\377')\" \"$(printf 'a\\nb')\"",
    "fifos": "mkdir .git/modules/f; mkfifo .git/modules/f/config .git/modules/f/HEAD",
}  # fmt: skip


FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
WAYS = sorted(HIDING) if FULL else random.Random(3).sample(sorted(HIDING), 6)


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
def test_what_a_command_does_hides_nothing(project: Person, how: str) -> None:
    first, *later = project.confined(HIDING[how], "chmod 755 .git; true", *TARGETS)
    assert first.code == 0, first.text
    assert all(result.code != 0 for result in later[1:]), later
    assert held(project)
    project.do("chmod 755 .git sub; chmod -R u+rwx .git/modules", project.workspace)
    for folder in (".", "sub", "libs/inner", "wt"):
        found = project.do("git config core.fsmonitor || true", project.workspace / folder)
        assert found.strip() in ("", "false"), folder


@pytest.mark.slow
def test_names_that_look_like_parts_of_git(person: Person, upstream: str) -> None:
    person.do(
        f"git init -q . && {SUBMODULE} {upstream} deploy/config && {SUBMODULE} {upstream}"
        f" deploy/other && {SUBMODULE} {upstream} 's#b' && git commit -qm 1",
        person.workspace,
    )
    lines = [
        line.format(f".git/modules/deploy/{name}")
        for name in ("config", "other")
        for line in (HOOK, CONFIG)
    ]
    commit = "cd deploy/config && touch f && git add f && git commit -qm 1"
    *results, works = person.confined(*lines, "echo x > 's#b/.git'", commit)
    assert all(result.code != 0 for result in results), results
    assert works.code == 0, works.text


def test_a_worktree_with_submodules_of_its_own(project: Person) -> None:
    worktree = project.place / "w2"
    project.do("git -c protocol.file.allow=always submodule -q update --init sub", worktree)
    module = f"{project.workspace}/.git/worktrees/w2/modules/sub"
    lines = [HOOK.format(module), CONFIG.format(module), "echo x > sub/.git",
             f"mkdir -p {project.workspace}/.git/modules/x"]  # fmt: skip
    results = project.confined(*lines, workspace=str(worktree))
    assert all(result.code != 0 for result in results), results


def test_folders_that_nobody_may_look_into_are_hidden_with_what_is_in_them(person: Person) -> None:
    person.do("mkdir d e; echo SECRET > d/.env; echo kept > e/prot", person.workspace)
    wish = {
        "hidden": [f"{person.workspace}/d/.env"],
        "protected": [f"{person.workspace}/e/prot"],
    }
    lines = ["chmod 0 d e", "chmod 755 d e; cat d/.env", "chmod 755 d e; echo x > e/prot"]
    results = person.confined(*lines, **wish)
    assert "SECRET" not in "".join(result.text for result in results)
    person.do("chmod 755 d e", person.workspace)
    assert (person.workspace / "e/prot").read_text() == "kept\n"


@pytest.mark.slow
def test_parts_of_git_that_look_like_git_are_left_alone(project: Person) -> None:
    """`logs` has a HEAD, `objects` an `info`."""
    project.do("git -C sub commit -q --allow-empty -m 2; git -C sub gc -q", project.workspace)
    lines = ["git -C sub gc -q && git -C sub fsck && git -C sub reflog && git gc -q && git fsck"]
    lines += ["find .git -name config.worktree -o -name commondir | sort"]
    works, placeholders = project.confined(*lines)
    assert works.code == 0, works.text
    assert "bad ref" not in works.text
    assert not [
        path for path in placeholders.text.split() if "/logs/" in path or "/objects/" in path
    ]
    project.do("for i in $(seq 1100); do mkdir -p .git/modules/sub/lfs/objects/$i; done",
               project.workspace)  # fmt: skip
    assert project.confined("true")[0].code == 0


def test_a_link_to_everything_hides_nothing_less(person: Person) -> None:
    person.do("ln -s / .env.x; mkdir -p ../secret; echo SECRET > ../secret/s", person.workspace)
    wish = {"hidden": [f"{person.workspace}/.env.x", f"{person.place}/secret"]}
    (result,) = person.confined(f"cat {person.place}/secret/s; ls /run /tmp", **wish)
    assert "SECRET" not in result.text
    assert "Permission denied" in result.text


@pytest.mark.slow
def test_a_submodule_below_what_looks_like_one_keeps_its_own_parts(project: Person) -> None:
    many = "cd .git/modules/libs/inner/objects; seq -f n%g 1100 | xargs mkdir"
    project.do(f"touch .git/modules/libs/HEAD; {many}", project.workspace)
    hook, config, works = project.confined(
        HOOK.format(".git/modules/libs/inner"),
        CONFIG.format(".git/modules/libs/inner"),
        "cd libs/inner && touch f && git add f && git commit -qm 1 && git gc -q && git fsck",
    )
    assert (hook.code == 0, config.code == 0) == (False, False)
    assert works.code == 0, works
