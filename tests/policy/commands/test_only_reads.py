"""What counts as a look changes nothing: random words for real programs, in a scratch folder.

Only what would be run unasked is run. After each run the folder is what it was before, and no
program that lies in it was started.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolrest.policy.commands.git import LISTING, disarmed_git, listed_names
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
TRIES = 400_000 if FULL else 30_000
RUNS = 8_000 if FULL else 120

PROGRAMS = [
    name
    for name in [
        *("cat", "nl", "paste", "rev", "tac", "wc", "stat", "cksum", "comm", "cmp", "join", "od"),
        *("hexdump", "strings", "fold", "expand", "fmt", "realpath", "readlink", "ls", "du", "df"),
        *("head", "cut", "column", "grep", "jq", "sort", "uniq", "shuf", "base64", "diff", "file"),
        *("tree", "rg", "fd", "sed", "find", "date", "xxd", "numfmt", "basename", "seq", "tr"),
        *("which", "getconf", "printenv"),
    ]
    if shutil.which(name)
]
SUBCOMMANDS = [
    *("status", "diff", "log", "show", "whatchanged", "rev-list", "shortlog", "branch", "tag"),
    *("blame", "grep", "cat-file", "describe", "rev-parse", "ls-files", "ls-tree", "merge-base"),
    *("show-ref", "name-rev", "count-objects", "check-ignore", "remote", "stash", "worktree"),
    *("reflog", "config", "version"),
]
VALUES = [
    *("a", "b.txt", "out", "-o", "-oout", "--output=out", "--output", "out1", "1", "2", "-1", "5p"),
    *("HEAD", "HEAD~1", "HEAD:a", "v1", "main", "x=y", ".", "./sub", "./trap.sh", "sh=./trap.sh"),
    *("--pre=./trap.sh", "--compress-program=./trap.sh", "-exec", ";", "-delete", "-d", "-D", "-m"),
    *("-f", "-i", "--ext-diff", "--textconv", "--list", "-l", "-n", "-U", "--", "+%s", "%s", "-w"),
    *("list", "get-url", "-name", "*.txt", "--get", "--unset", "user.name", "-c", "1,2p", "w"),
    *("core.pager=./trap.sh", "wout", "5w", "-e", "1e", "-print", "-fprint"),
]
TRAP = '#!/bin/sh\ntouch "$(dirname "$0")/SPRUNG"\n'


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reads") / "w"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("one\ntwo\ntwo\n")
    (folder / "b.txt").write_text("b\na\nc\n")
    (folder / "sub/c").write_text("{}\n")
    trap = folder / "trap.sh"
    trap.write_text(TRAP)
    trap.chmod(0o755)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-qm", "1"],
        ["tag", "v1"],
    ):
        subprocess.run([*git, *words], cwd=folder, check=True)
    (folder / "a").write_text("one\nthree\n")
    subprocess.run([*git, "commit", "-qam", "2"], cwd=folder, check=True)
    (folder / "b.txt").write_text("changed\n")
    for key in ("diff.external", "core.fsmonitor", "core.pager", "pager.log", "gpg.program"):
        subprocess.run(["git", "config", key, "./trap.sh"], cwd=folder, check=True)
    (folder / "SPRUNG").unlink(missing_ok=True)
    return folder


@pytest.fixture(scope="module")
def env(scratch: Path) -> dict[str, str]:
    base = {"PATH": os.environ["PATH"], "HOME": str(scratch.parent), "LC_ALL": "C.UTF-8"}
    listing = subprocess.run(
        ["sh", "-c", LISTING],
        cwd=scratch,
        env=base | (disarmed_git() or {}),
        capture_output=True,
        check=True,
    )
    disarmed = disarmed_git(listed_names(listing.stdout) or ())
    assert disarmed is not None
    return base | disarmed


def options_of(name: str, *words: str) -> list[str]:
    """Long options that the program's own help names."""
    done = subprocess.run(
        [name, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        errors="replace",
    )
    return sorted(set(re.findall(r"--[a-z][a-z-]+=?", done.stdout + done.stderr)))


def commands(seed: int) -> Iterator[tuple[str, ...]]:
    """Random argument vectors: half of them git's."""
    roll = random.Random(seed)
    longs = {name: options_of(name, "--help") for name in PROGRAMS}
    longs |= {f"git {sub}": options_of("git", sub, "-h") for sub in SUBCOMMANDS}
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    while True:
        key = roll.choice(list(longs)) if roll.random() < 0.5 else f"git {roll.choice(SUBCOMMANDS)}"
        words = key.split()
        for _ in range(roll.randrange(1, 5)):
            kind = roll.random()
            if kind < 0.35:
                words.append("-" + "".join(roll.choices(letters, k=roll.choice((1, 1, 1, 2, 3)))))
            elif kind < 0.65 and longs[key]:
                long = roll.choice(longs[key])
                words.append(long + roll.choice(VALUES) if long.endswith("=") else long)
            else:
                words.append(roll.choice(VALUES))
        yield tuple(words)


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file with what would change if it were written."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in (".", *names):
            path = os.path.join(where, name)
            info = os.lstat(path)
            found[path] = (info.st_mode, info.st_size, info.st_mtime_ns)
    return found


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_counts_as_a_look_changes_nothing(scratch: Path, env: dict[str, str]) -> None:
    """On the tree before this `git diff -U --output=out` did."""
    before = state(scratch)
    ran = 0
    for _, argv in zip(range(TRIES), commands(20261116), strict=False):
        if judge(argv, cwd=str(scratch), home="/home/u").kind != CommandClass.SAFE:
            continue
        ran += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                argv,
                cwd=scratch,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=5,
                check=False,
                preexec_fn=_limit,
            )
        assert state(scratch) == before, argv
        if ran == RUNS:
            break
    assert ran == RUNS
