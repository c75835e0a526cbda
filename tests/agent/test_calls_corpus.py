"""Five hundred recorded calls of every built-in tool: what `never` and `strict` make of them.

Each row of the corpus says whether the call touches anything and whether it is denied: by a rule,
a setting, a hidden or protected path, the dangerous list, or because it would have to leave.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolrest import ApprovalRequest, Toolrest

CORPUS = Path(__file__).parents[1] / "data" / "calls.jsonl"
FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
SAMPLE = 60
SETTINGS: dict[str, Any] = {
    "approvals": {
        "commands": {"npm publish": "deny", "git push": "deny"},
        "paths": {"vendor": "deny"},
    },
}
FILES = {
    "README.md": "# Sample\n",
    "notes.txt": "alpha\nbeta\nx: y\n",
    "data.json": "{}\n",
    "run.sh": "#!/bin/sh\necho ran\n",
    "Makefile": "all test x slow check:\n\t@echo made\n",
    "src/app.py": "def main():\n    print('x')\n",
    "src/util.py": "def one():\n    return 1\n" + "".join(f"# line {n}\n" for n in range(10)),
    "tests/test_app.py": "import unittest\n",
    "vendor/lib.py": "a = 1\n",
    ".env": "TOKEN=corpus-secret-value\n",
    ".env.local": "TOKEN=corpus-secret-value\n",
}


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    home = os.path.expanduser("~")
    return [json.loads(line.replace("{home}", home)) for line in CORPUS.read_text().splitlines()]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "deep" / "work"
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / ".git" / "hooks").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


class Asked(list[ApprovalRequest]):
    def __call__(self, request: ApprovalRequest) -> bool:
        self.append(request)
        return False


def session(work: Path, mode: str, asked: Asked) -> Toolrest:
    return Toolrest(work, approval_policy=mode, on_ask=asked, settings=SETTINGS)


def named(row: dict[str, Any]) -> str:
    return f"{row['tool']} {json.dumps(row['arguments'])}"


def test_the_corpus_is_large_and_knows_every_tool(work: Path, rows: list[dict[str, Any]]) -> None:
    counts = Counter(row["tool"] for row in rows)
    assert len(rows) >= 500
    assert min(counts.values()) >= 10
    rest = session(work, "never", Asked())
    offered = {tool.name for tool in rest.tools}
    assert offered <= counts.keys(), "record at least ten calls of a new tool in calls.jsonl"


@pytest.mark.needs("sandbox")
def test_never_asks_nothing_and_denials_still_deny(work: Path, rows: list[dict[str, Any]]) -> None:
    rest = session(work, "never", Asked())
    verdicts = [(row, rest.explain(row["tool"], row["arguments"])) for row in rows]
    assert [named(row) for row, found in verdicts if found.verdict == "ask"] == []
    assert [
        named(row) for row, found in verdicts if row["denied"] and found.verdict != "deny"
    ] == []
    refused = [
        (named(row), found.reason)
        for row, found in verdicts
        if not row["denied"] and found.verdict != "allow"
    ]
    assert refused == []


def test_strict_asks_about_everything_that_touches_anything(
    work: Path, rows: list[dict[str, Any]]
) -> None:
    rest = session(work, "strict", Asked())
    loose = [
        named(row)
        for row in rows
        if row["touches"] and rest.explain(row["tool"], row["arguments"]).verdict == "allow"
    ]
    assert loose == []
    bothered = [
        named(row)
        for row in rows
        if not row["touches"] and rest.explain(row["tool"], row["arguments"]).verdict != "allow"
    ]
    assert bothered == []


@pytest.mark.slow
@pytest.mark.needs("sandbox")
async def test_running_them_in_never_asks_nobody_and_harms_nothing(
    work: Path, rows: list[dict[str, Any]]
) -> None:
    chosen = rows if FULL else random.Random(11).sample(rows, SAMPLE)
    asked = Asked()
    async with session(work, "never", asked) as rest:
        for row in chosen:
            output = await rest.call(row["tool"], row["arguments"])
            assert "corpus-secret-value" not in output.text, named(row)
            if row["denied"]:
                assert output.failure is not None, named(row)
    assert asked == []
    assert os.listdir(work / ".git" / "hooks") == []
    assert [(p.name, p.read_text()) for p in (work / "vendor").iterdir()] == [("lib.py", "a = 1\n")]
    assert sorted(os.listdir(work.parent)) == ["work"]


async def test_running_them_in_strict_runs_nothing_that_touches(
    work: Path, rows: list[dict[str, Any]]
) -> None:
    before = {path: path.read_text() for path in work.rglob("*") if path.is_file()}
    asked = Asked()
    chosen = [row for row in rows if row["touches"] and not row["denied"]]
    chosen = chosen if FULL else random.Random(12).sample(chosen, SAMPLE)
    async with session(work, "strict", asked) as rest:
        for row in chosen:
            output = await rest.call(row["tool"], row["arguments"])
            assert output.failure is not None, named(row)
    assert {path: path.read_text() for path in work.rglob("*") if path.is_file()} == before
    assert asked
