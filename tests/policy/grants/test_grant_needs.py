"""Keys of whole command lines: what is offered lets the same line through, and little else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.policy.grants.command_keys import RunsHow, command_keys, grant_words, granted_by
from toolrest.policy.grants.key import GrantKey
from toolrest.policy.rules.rules import Rules
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.outcome import Outcome, Setting, outcome
from toolrest.policy.verdict.verdict import CommandClass

TABLE = Path(__file__).parents[2] / "data" / "commands.jsonl"
COMMANDS = [json.loads(line)["command"] for line in TABLE.read_text().splitlines()]
SETTING = Setting("untrusted", "workspace-write")
WORK = "/home/u/proj"


def decide(command: str, keys: Sequence[GrantKey] = (), cwd: str = WORK) -> Outcome:
    verdict = judge(command, cwd=cwd, writable_roots=(WORK, "/tmp"), home="/home/u")

    def covers(need: GrantKey, cwds: Sequence[str]) -> bool:
        return any(key.covers(need, cwds) for key in keys)

    return outcome(verdict, Rules(), SETTING, granted=granted_by(covers, RunsHow(outside=False)))


def offered(command: str) -> tuple[GrantKey, ...]:
    return command_keys(decide(command), RunsHow(outside=False), workspace=WORK)


KEYS = {command: offered(command) for command in COMMANDS if decide(command).answer == "ask"}


def test_most_of_what_is_understood_can_be_remembered() -> None:
    ordinary = [c for c in KEYS if judge(c, cwd=WORK, home="/home/u").kind <= CommandClass.RUNS]
    assert sum(bool(KEYS[command]) for command in ordinary) > len(ordinary) * 0.6


@pytest.mark.parametrize("kind", [CommandClass.UNKNOWN, CommandClass.DANGEROUS])
def test_nothing_grave_is_ever_lifted(kind: CommandClass) -> None:
    everything = [key for keys in KEYS.values() for key in keys]
    for command in COMMANDS:
        if judge(command, cwd=WORK, home="/home/u").kind == kind:
            assert decide(command, everything).answer != "allow", command


def test_what_is_offered_lets_the_same_line_through() -> None:
    for command, keys in KEYS.items():
        after = decide(command, keys)
        if keys and after.answer != "allow":
            # Only what the shell writes or sets by itself may still ask.
            left = [d.segment for d in after.decided if d.decision != "allow"]
            assert all(s.redirected or s.assigns or not s.argv for s in left), command


@given(st.sampled_from(sorted(c for c in KEYS if KEYS[c])), st.sampled_from(sorted(KEYS)))
def test_a_grant_lets_through_only_lines_of_granted_commands(granted: str, other: str) -> None:
    keys = KEYS[granted]
    found = decide(other, keys)
    if found.answer != "allow":
        return
    for decided in found.decided:
        if decided.row == "grant" and decided.segment.depth == 0:
            assert any(
                decided.segment.argv[: len(key.words)] == key.words
                and (not key.exact or decided.segment.argv == key.words)
                for key in keys
            ), (granted, other)


@given(st.sampled_from(sorted(c for c in KEYS if KEYS[c])), st.sampled_from(COMMANDS))
def test_another_command_behind_a_granted_one_is_still_judged(granted: str, more: str) -> None:
    if decide(granted, KEYS[granted]).answer != "allow" or "\n" in granted or "#" in granted:
        return
    together = decide(f"{granted}\n{more}", KEYS[granted])
    if decide(more, KEYS[granted]).answer != "allow":
        assert together.answer != "allow", (granted, more)


@given(st.sampled_from(sorted(c for c in KEYS if KEYS[c])))
def test_a_grant_ends_at_its_folder(granted: str) -> None:
    if any("/" in word for key in KEYS[granted] for word in key.words) or "cd" in granted:
        return
    assert decide(granted, KEYS[granted], cwd="/srv/other").answer == "ask"


@pytest.mark.parametrize(
    ("argv", "words", "exact"),
    [
        ("pytest -q a.py", "pytest", False),
        ("uv run pytest -q", "uv run pytest", False),
        ("uv run python x.py", "uv run python x.py", True),
        ("uv run bash -c x", "uv run bash -c x", True),
        ("uv run --with x pytest", "uv run --with x pytest", True),
        ("python -m pytest a", "python -m pytest", False),
        ("python -m http.server", "python -m http.server", True),
        ("python x.py", "python x.py", True),
        ("npm run build --x", "npm run build", False),
        ("npm install x", "npm install x", True),
        ("npm test -- -x", "npm test", False),
        ("cargo test a", "cargo test", False),
        ("cargo install x", "cargo install x", True),
        ("git commit -m x", "git commit", False),
        ("git push origin", "git push origin", True),
        ("git -c a=b commit", "git -c a=b commit", True),
        ("npx tsc -p .", "npx tsc", False),
        ("npx evil", "npx evil", True),
        ("make x", "make x", True),
        ("rm x", "rm x", True),
        ("./pytest", "./pytest", True),
        ("/tmp/pytest x", "/tmp/pytest x", True),
    ],
)
def test_how_much_a_yes_speaks_for(argv: str, words: str, exact: bool) -> None:
    assert grant_words(argv.split()) == (tuple(words.split()), exact)


@pytest.mark.parametrize("line", ["make > /elsewhere", "make >> ~/.profile", "CC=./x make"])
def test_a_grant_covers_neither_a_file_of_the_shell_nor_a_variable(line: str) -> None:
    keys = offered("make")
    assert decide("make", keys).answer == "allow"
    assert decide(line, keys).answer == "ask"
