"""The command table: what each command line gets in four settings, one row each."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from toolrest.policy.rules.rules import Rules
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.outcome import Setting, outcome

TABLE = Path(__file__).parents[2] / "data" / "commands.jsonl"
ROWS: list[dict[str, str]] = [json.loads(line) for line in TABLE.read_text().splitlines()]
COLUMNS = {
    "untrusted": Setting("untrusted", "workspace-write"),
    "on-request": Setting("on-request", "workspace-write"),
    "on-request, full access": Setting("on-request", "danger-full-access"),
    "never": Setting("never", "workspace-write"),
}
CATEGORIES = {
    "read-only",
    "pipelines",
    "unsafe-options",
    "git",
    "build-and-test",
    "files",
    "redirections",
    "expansions",
    "wrappers",
    "nesting-and-structure",
    "destructive",
    "network",
}
SUITES = ("git", "npm", "cargo", "go", "docker", "uv", "sudo", "env", "bash", "systemctl")


def answers(command: str) -> dict[str, str]:
    verdict = judge(
        command, cwd="/home/u/proj", writable_roots=("/home/u/proj", "/tmp"), home="/home/u"
    )
    return {name: outcome(verdict, Rules(), setting).answer for name, setting in COLUMNS.items()}


@pytest.mark.parametrize("category", sorted(CATEGORIES))
def test_every_row_gets_its_verdicts(category: str) -> None:
    rows = [row for row in ROWS if row["category"] == category]
    assert len(rows) >= 25
    wrong = []
    for row in rows:
        got = answers(row["command"])
        expected = {name: row[name] for name in COLUMNS}
        if got != expected:
            wrong.append((row["command"], expected, got))
    assert wrong == []


def test_table_is_large_and_has_twelve_categories() -> None:
    assert len(ROWS) >= 400
    assert {row["category"] for row in ROWS} == CATEGORIES
    assert len({row["command"] for row in ROWS}) == len(ROWS)


def operand(word: str) -> str:
    """The kind of a word that is not an option."""
    for pattern, kind in (
        (r".*[$`].*", "$"),
        (r".*[*?].*", "*"),
        (r"~.*", "~"),
        (r".*://.*", "url"),
        (r"/.*", "/"),
        (r"\.\..*", ".."),
        (r"\W+", word),
    ):
        if re.fullmatch(pattern, word, re.DOTALL):
            return kind
    return "word"


def shape(command: str) -> tuple[str, ...]:
    """The program and how its words look, whatever they say."""
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda m: "$" if "$" in m[0] else "quoted", command)
    words = re.findall(r"[^\s|&;()<>{}!]+|[|&;()<>{}!]+", unquoted)
    own = 2 if words[0] in SUITES else 1
    return (*words[:own], *(w if w[0] == "-" else operand(w) for w in words[own:]))


def test_no_shape_comes_more_than_three_times() -> None:
    shapes = Counter(shape(row["command"]) for row in ROWS)
    assert {shape: count for shape, count in shapes.items() if count > 3} == {}


def test_nothing_that_asks_or_is_forbidden_runs_in_a_stricter_setting() -> None:
    for row in ROWS:
        if row["on-request"] == "ask":
            assert row["untrusted"] == "ask"
            assert row["never"] == "deny", row


def test_everyday_reading_does_not_ask() -> None:
    for row in ROWS:
        if row["category"] in ("read-only", "pipelines"):
            assert row["untrusted"] == row["on-request"] == row["never"] == "allow", row
